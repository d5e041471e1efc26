"""The gate: reads, writes and takes out words about photos, one photo after the other."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path

from typing_extensions import Self

from captioner import files
from captioner.errors import UserError, counted, on_a_line
from captioner.library import embedding, merge, texts
from captioner.library.beside import ENDINGS, Beside
from captioner.library.exiftool import Exiftool
from captioner.library.following import follow
from captioner.library.inside import Inside, read_inside
from captioner.library.merge import OPTION
from captioner.library.words import Description, Places, Said, Undone, Words, Writer, Written
from captioner.library.xmp import EXTENSION, NAMESPACES, Packet

_MARK = NAMESPACES["captioner"].encode()
SHARED = "the file beside it would be of another photo, too, and was not written"
"""A problem of each such photo; `Library.notes` names them once."""


@dataclass(frozen=True)
class _Found:
    """What is in and beside a photo, parsed. packets: in the photo, a new one if there is none."""

    photo: Path
    sidecars: Mapping[Path, Packet]
    packets: Sequence[Packet]
    inside: Inside

    def descriptions(self) -> list[Description]:
        """The descriptions, and who wrote each; the first counts most."""
        beside, inside = dict[str, Writer](), dict[str, Writer]()
        for packet in self.sidecars.values():
            beside |= merge.described(packet)
        for packet in self.packets:
            inside |= merge.described(packet)
        for text in self.inside.texts:
            inside.setdefault(text, "person")
        found = [Description(text, "sidecar", writer) for text, writer in beside.items()]
        return found + [Description(text, "photo", writer) for text, writer in inside.items()]

    def packet_of(self, path: Path) -> Packet:
        """The packet of a sidecar, new if there is none, or that of the photo."""
        if path != self.photo:
            return self.sidecars.get(path) or Packet(None, f"{path}")
        if len(self.packets) > 1:
            raise UserError(f"{path} has XMP in several parts; --xmp writes beside it")
        return self.packets[0]


class Library:
    """Photos with the words in them and beside them; a context manager, which ends exiftool.

    Threads may share it. It keeps nothing of a photo, but the names of the folders it saw last.

    photos: all of a run, to find those that would share a sidecar or text: they get none.
    overwrite: replace people's words, of which copies are kept.
    dry_run: change nothing; `Written.notes` and `Undone.notes` say what would change.
    notes: sentences about the photos of the run, for people; said once.

    Raises `UserError` if `places.embed` and exiftool is not there.
    """

    def __init__(
        self,
        places: Places = Places(),  # noqa: B008 (it is frozen)
        overwrite: bool = False,
        dry_run: bool = False,
        photos: Iterable[str] = (),
    ) -> None:
        self._places, self._overwrite, self._is_dry = places, overwrite, dry_run
        self._beside, self._exiftool = Beside(), Exiftool()
        self._remove_leftovers = lru_cache(16)(_remove_leftovers)
        self.notes: list[str] = []
        if places.embed:
            self._exiftool.check()
        firsts, self._shared = dict[int, str](), dict[str, list[str]]()
        for photo in photos:
            for option, path in self.files(photo).items():
                first = firsts.setdefault(hash(path), photo)
                if option != "embed" and files.real_path(first) != files.real_path(photo):
                    self._shared.setdefault(path, [first]).append(photo)
        for path, owners in [*self._shared.items()][:1]:
            count = f"{counted(len(self._shared), 'file')} not written"
            example = f"such as {path} of {' and of '.join(owners)}"
            hint = ", or give --xmp-for digikam" if places.sidecar == "lightroom" else ""
            self.notes = [f"{count}: it would be of several photos, {example}; rename one{hint}"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End exiftool."""
        self._exiftool.close()

    def said(self, photo: str) -> Said:
        """The words in and beside a photo. Raises `UserError` if a part cannot be read."""
        found = self._found(Path(photo))
        sidecars = found.sidecars.values()
        keywords = chain.from_iterable(map(merge.own_keywords, [*sidecars, *found.packets]))
        has_person = any(map(merge.has_person, sidecars))
        return Said(found.descriptions(), [*dict.fromkeys(keywords)], has_person)

    def files(self, photo: str) -> Mapping[str, str]:
        """Where its words go, by option: `xmp`, `text`, `embed` (the photo itself)."""
        path, places = Path(photo), {}
        if self._places.text:  # First: XMP says whose the text was.
            places["text"] = os.fspath(self._beside.text(path))
        if self._places.sidecar:
            places["xmp"] = os.fspath(self._beside.sidecar(path, self._places.sidecar))
        if self._places.embed:
            places["embed"] = photo
        return places

    def has_text(self, photo: str) -> bool:
        """Whether there is a text beside a photo: an empty one is none."""
        return bool(texts.content_of(self._beside.text(Path(photo))))

    def write(self, photo: str, words: Words, own_texts: Sequence[str] = ()) -> Written:
        """Write words where the places say; a person's description stays, and gets keywords alone.

        Problems are in the result; nothing is raised. Without a caption, keywords alone are
        written, and a description that captioner wrote goes.

        own_texts: captions and lines that records say captioner wrote for this photo or for the one
            that had its name: a text that equals one, or has it behind another trigger word, is
            replaced.
        """
        keywords = [*map(on_a_line, words.keywords)]
        words = replace(words, caption=on_a_line(words.caption), keywords=keywords)
        done, found, places = Written(), None, self.files(photo)
        try:
            self._tidy(Path(photo))
            found = self._found(Path(photo))
        except UserError as error:  # The unreadable part may be a person's words.
            done.problems.append(str(error))
            places = {option: path for option, path in places.items() if option == "text"}
        if found and found.inside.problem:
            done.problems.append(found.inside.problem)
            return done
        has_xmp = places.keys() & {"xmp", "embed"}
        is_alone = self._keeps_words(found, words, done) if found and has_xmp else False
        written: dict[str, str] = {}
        for option, path in places.items():
            is_nothing = is_alone and not (words.keywords or os.path.lexists(path))
            if (option == "text" and not words.caption) or (option == "xmp" and is_nothing):
                continue
            try:
                if path in self._shared:
                    raise UserError(SHARED)
                if option == "text":
                    self._write_text(Path(path), Path(photo), words, own_texts, done)
                elif found:
                    self._write_xmp(Path(path), found, words, is_alone, done)
                written[option] = path
            except UserError as error:
                done.problems.append(str(error))
        done.files = {} if self._is_dry else written
        return done

    def undo(self, photo: str, words: Words | None = None) -> Undone:
        """Take out what captioner wrote and nobody changed since, in all places.

        The words of people that it had replaced come back.

        words: what a table says was written for the photo: such a text goes, if a model wrote it,
            or if there is a copy of the one before.
        """
        path, done = Path(photo), Undone()
        text = self._beside.text(path)
        # The text before the XMP that says whose it is, which a kill may leave there.
        places = [("text", text), *(("xmp", each) for each in chain(*self._beside.sidecars(path)))]
        places = [each for each in [*places, ("embed", path)] if os.path.isfile(each[1])]
        if not places:
            done.problems.append(f"{photo} does not exist")
        self._tidy(path)
        for option, each in places:
            try:
                if option == "text":
                    gone = self._undo_text(text, path, words)
                    done.is_text_left = not gone
                else:
                    gone = self._undo_xmp(each, option == "embed")
            except UserError as error:
                done.problems.append(str(error))
                continue
            if gone:
                done.words[option] = gone
                done.notes += [_would("lose", each, gone)] if self._is_dry else []
        return done

    def follow(self, moved: Mapping[str, str]) -> Sequence[str]:
        """Rename sidecars and texts with photos that were renamed, all at once (they may swap).

        A file of a photo that is gone and stands in the way is removed if captioner wrote all of
        it; else it gets the ending `.orphaned`. Returns a sentence about each of those, and about
        each file that could not follow. A dry run renames nothing.

        moved: new names by old ones.
        """
        said = [] if self._is_dry else follow(moved)
        self._beside = Beside()
        return said

    def remove_orphan(self, photo: str) -> bool:
        """Remove the sidecar of a photo that is gone, if captioner made it and wrote all of it.

        It stays where another file has the photo's name, but for the ending.
        """
        path, is_removed = Path(photo), False
        if self._is_dry or os.path.lexists(path) or self._beside.has_namesake(path):
            return False
        for sidecar in filter(os.path.isfile, chain(*self._beside.sidecars(path))):
            with suppress(OSError, UserError):
                if merge.is_own(_packet(sidecar)):
                    sidecar.unlink()
                    is_removed = True
        return is_removed

    def _tidy(self, photo: Path) -> None:
        if not self._is_dry:
            self._remove_leftovers(photo.parent)

    def _found(self, photo: Path, with_sidecars: bool = True) -> _Found:
        places = self._beside.sidecars(photo) if with_sidecars else []
        paths = filter(os.path.isfile, chain(*places))
        sidecars = {path: _packet(path) for path in paths}
        with files.refuse_os_errors(f"cannot read {photo}"):
            inside = read_inside(photo, self._exiftool)
        name = f"the XMP of {photo}"
        packets = [Packet(content, name) for content in inside.packets] or [Packet(None, name)]
        packets[0].properties |= inside.iptc
        return _Found(photo, sidecars, packets, inside)

    def _keeps_words(self, found: _Found, words: Words, done: Written) -> bool:
        """Whether a photo gets keywords alone: a person describes it, or may do so unseen."""
        others = ("person",) if words.by_person else ("person", "table")
        described = [each.text for each in found.descriptions() if each.by in others]
        kept = described[0] if described and words.caption and not self._overwrite else ""
        unseen = found.inside.unseen
        if kept not in ("", words.caption):
            done.kept = kept
            advice = f"{OPTION} replaces it"
            done.notes.append(f"{found.photo} keeps its description {kept!r}; {advice}")
        elif unseen:
            done.notes.append(f"{found.photo} gets keywords alone: words in {unseen} need exiftool")
        return bool(done.kept or unseen or not words.caption)

    def _write_xmp(
        self, path: Path, found: _Found, words: Words, is_alone: bool, done: Written
    ) -> None:
        """Write into a sidecar, or into the photo."""
        packet = found.packet_of(path)
        merged = merge.merged(packet, words, self._overwrite, is_alone)
        suffix = self._beside.raw_suffix(path)[1:].upper()
        if packet.is_new and suffix and path != found.photo:
            merged.properties[EXTENSION] = [("", suffix)]
        done.notes += [f"{path}: {note}" for note in merged.notes]
        if self._apply(path, packet, merged):
            copy = f"captioner:before in {path}"
            self._announce(path, merged.words, [*dict.fromkeys(merged.replaced)], copy, done)

    def _apply(self, path: Path, packet: Packet, merged: merge.Merged) -> bool:
        """Write the values of a packet into a sidecar or photo; returns whether it changes.

        A sidecar that captioner made goes if it is left empty.
        """
        content = packet.replaced(merged.properties)
        iptc = embedding.iptc_changes(packet.properties, merged.properties)
        if content == packet.content and not iptc:
            return False
        is_made = packet.is_new or merge.MADE in packet.properties
        is_gone = is_made and Packet(content, packet.name).is_empty
        if path.suffix.lower() != ".xmp":
            left = None if is_gone else content
            embedding.embed(path, left, iptc, self._exiftool, self._is_dry)
        elif not is_gone:
            self._replace(path, content)
        elif not self._is_dry:
            path.unlink()
        return True

    def _write_text(
        self, path: Path, photo: Path, words: Words, own_texts: Sequence[str], done: Written
    ) -> None:
        """Write a text, unless it is a person's."""
        old, line = texts.content_of(path), words.line
        captions = {line, words.caption, *map(str.strip, own_texts)}
        is_own = not old or texts.is_own(old, line, captions)
        replaced, copy = [], ""
        writers: tuple[Writer, ...] = ("captioner", "table") if words.by_person else ("captioner",)
        if not is_own and not texts.is_own(old, line, self._own_captions(photo, *writers)):
            if not self._overwrite:
                done.notes.append(f"{path} holds another text; {OPTION} replaces it")
                done.kept = old
                return
            replaced, copy = [old], os.fspath(texts.copies(path)[1])
            self._replace(Path(copy), files.read_bytes(path))
        if self._replace(path, f"{line}\n".encode(errors="backslashreplace")):
            self._announce(path, [line], replaced, copy, done)

    def _own_captions(self, photo: Path, *writers: Writer) -> Sequence[str]:
        """The captions that XMP says captioner wrote."""
        with suppress(UserError):
            return self.said(str(photo)).by(*writers)
        return ()

    def _undo_text(self, path: Path, photo: Path, words: Words | None) -> list[str]:
        """Put back the last text that a caption replaced, or remove a caption that replaced none.

        Words of a person that replaced none may have been the text before: they stay.
        """
        content, (last, unused) = texts.content_of(path), texts.copies(path)
        writers: tuple[Writer, ...] = ("captioner", "table") if last else ("captioner",)
        own = {*self._own_captions(photo, *writers)}
        if words and (last or not words.by_person):
            own |= {words.caption, words.line}
        if not self._is_dry:
            unused.unlink(missing_ok=True)
        if content not in own:
            return []
        if last and not self._is_dry:
            files.replace(last, path)
        elif not self._is_dry:
            path.unlink()
        return [content]

    def _undo_xmp(self, path: Path, is_embedded: bool) -> list[str]:
        """Take captioner's words out of a photo, or of a sidecar, which goes if that made it."""
        if not is_embedded and _MARK not in files.read_bytes(path):
            return []
        found = self._found(path, with_sidecars=False) if is_embedded else None
        packets = found.packets if found else [_packet(path)]
        if not any(name.startswith("captioner:") for each in packets for name in each.properties):
            return []
        packet = found.packet_of(path) if found else packets[0]
        done = merge.undone(packet)
        self._apply(path, packet, done)
        return [*dict.fromkeys(done.words)]

    def _replace(self, path: Path, content: bytes) -> bool:
        """Write a file unless it is so; in a dry run, check that it can be. Whether it changes."""
        if os.path.lexists(path) and files.read_bytes(path) == content:
            return False
        if not self._is_dry:
            files.write_bytes(path, content)
            return True
        with files.refuse_os_errors(f"cannot write {path}"), suppress(FileNotFoundError):
            os.stat(path)  # Its name may be too long.
        files.check_writable(f"writing {path}", Path(os.path.realpath(path)).parent)
        return True

    def _announce(
        self, path: Path, written: Sequence[str], replaced: Sequence[str], copy: str, done: Written
    ) -> None:
        """Count a change, and name what a dry run would write, and people's words that go."""
        done.changes += 1
        done.replaced += replaced
        done.notes += [_would("get", path, written)] if self._is_dry else []
        if replaced:
            gone = ", ".join(map(repr, replaced))
            done.notes.append(f"{path}: {OPTION} replaces {gone}; a copy: {copy}")


def _packet(path: Path) -> Packet:
    return Packet(files.read_bytes(path), f"{path}")


def _would(verb: str, path: Path, words: Sequence[str]) -> str:
    return f"{path} would {verb} {', '.join(map(repr, words)) or 'nothing'}"


def _remove_leftovers(folder: Path) -> None:
    files.remove_leftovers(folder / f"photo{end}" for end in (*ENDINGS, embedding.TEMPORARY))
