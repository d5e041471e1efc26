"""The gate: reads, writes and takes out words about photos, one photo after the other."""

import mimetypes
import os
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path

from typing_extensions import Self

from captioner import files
from captioner.errors import UserError, noted, on_a_line
from captioner.library import merge, texts
from captioner.library.beside import ENDINGS, Beside
from captioner.library.exiftool import TEMPORARY, Exiftool
from captioner.library.following import digest_in
from captioner.library.inside import Inside, read_inside
from captioner.library.words import OPTION, Description, Places, Words, Written
from captioner.library.xmp import EXTENSION, MARK, Packet, Properties


class Library:
    """Photos with the words in them and beside them; a context manager, which ends exiftool.

    Threads may share it. It keeps nothing of a photo, but the names of the folders it saw last.

    photos: all of a run: those that would share a sidecar or text get none.
    overwrite: replace people's words, of which copies are kept.
    dry_run: change nothing; `Written.notes` say what would change.
    photo_digest: gives the digest of a photo's file, by which `undo` knows whose a sidecar is.

    Raises `UserError` if `places.embed` and exiftool is not there.
    """

    def __init__(
        self,
        places: Places = Places(),  # noqa: B008 (it is frozen)
        overwrite: bool = False,
        dry_run: bool = False,
        photos: Container[str] = (),
        photo_digest: Callable[[str], str] = lambda photo: "",
    ) -> None:
        self._places, self._overwrite, self._is_dry = places, overwrite, dry_run
        self._photos, self._beside, self._tidied = photos, Beside(), set[Path]()
        self._exiftool, self._photo_digest = Exiftool(), photo_digest
        if places.embed:
            self._exiftool.check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End exiftool."""
        self._exiftool.close()

    def said(self, photo: str) -> Sequence[Description]:
        """The descriptions in and beside a photo, but by cameras; the first counts most.

        Raises `UserError` if a part cannot be read.
        """
        return _described(self._found(Path(photo))[0])

    def files(self, photo: str) -> Mapping[str, str]:
        """Where its words go, by option: `xmp`, `text`, `embed` (the photo itself)."""
        path, places = Path(photo), {}
        if self._places.text:  # First: XMP says whose the text was.
            places["text"] = os.fspath(self._beside.text(path))
        if self._places.sidecar:
            places["xmp"] = os.fspath(self._beside.sidecar(path, self._places.sidecar))
        return places | ({"embed": photo} if self._places.embed else {})

    def has_text(self, photo: str) -> bool:
        """Whether there is a text beside a photo: an empty one is none."""
        return bool(texts.content_of(self._beside.text(Path(photo))))

    def write(self, photo: str, words: Words) -> Written:
        """Write words where the places say; a person's description stays, and gets keywords alone.

        Problems are in the result; nothing is raised. Without a caption, keywords alone are
        written, and a description that captioner wrote goes.
        """
        keywords = [*map(on_a_line, words.keywords)]
        words = replace(words, caption=on_a_line(words.caption), keywords=keywords)
        done, path = Written(would="get" if self._is_dry else ""), Path(photo)
        packets, keywords_only = dict[Path, Packet](), False
        self._tidy(path.parent)
        with noted(done.problems.append):  # An unreadable part may be a person's words.
            _check_kind(path)
            if self._places.sidecar or self._places.embed:
                packets, inside = self._found(path, self._places.embed)
                keywords_only = self._keeps_words(photo, packets, inside, words, done)
        for option, name in {} if done.problems else self.files(photo).items():
            place = Path(name)
            with noted(done.problems.append):
                packet = packets.get(place) or Packet(None, name)
                self._check_unshared(path, option, place, words)
                if option == "text":
                    self._write_text(path, place, words, done)
                else:
                    self._write_xmp(place, packet, words, keywords_only, done)
                if os.path.lexists(place) and not self._is_dry:
                    done.files[option] = name
        return done

    def undo(self, photo: str, words: Words | None = None) -> Written:
        """Take out what captioner wrote and nobody changed since, in all places.

        The words of people that it had replaced come back. What is beside another photo of the
        name, as `a.xmp` may be of `a.jpg` and not of `a.png`, stays.

        words: what a table says was written for the photo: such a text goes, if a model wrote it,
            or if there is a copy of the one before.
        """
        path, done = Path(photo), Written(would="lose" if self._is_dry else "")
        self._tidy(path.parent)
        sidecars, digest = [*chain(*self._beside.sidecars(path))], self._photo_digest
        others = [*map(str, self._beside.others(path))]
        digests = {*map(digest, others)} - {digest(photo), ""} if others else set()
        own = [place for place in sidecars if not (digests and digest_in(place) in digests)]
        # The text before the XMP that says whose it is, which a kill may leave there.
        places = [("text", self._beside.text(path))] if own == sidecars else []
        places += [*(("xmp", place) for place in own), ("embed", path)]
        places = [each for each in places if os.path.isfile(each[1])]
        if not places:
            done.problems.append(f"{photo} does not exist")
        for option, place in places:
            with noted(done.problems.append), files.refuse_os_errors(f"cannot write {place}"):
                _check_kind(path)
                if option == "text":
                    self._undo_text(path, place, words, done)
                elif MARK in files.read_bytes(place):
                    packet = _packet(place) if option == "xmp" else self._found(path, True)[0][path]
                    gone = merge.undone(packet)
                    if self._save(place, packet, gone.properties):
                        done.count(option, place, gone.words)
        return done

    def remove_orphan(self, photo: str) -> bool:
        """Remove the sidecar of a photo that is gone, if captioner made it and wrote all of it.

        It stays where another photo has the name, but for the ending.
        """
        path, is_removed = Path(photo), False
        is_kept = self._is_dry or self._beside.namesakes(path)
        for place in () if is_kept else chain(*self._beside.sidecars(path)):
            with suppress(UserError, OSError):
                if merge.is_own(_packet(place)):
                    place.unlink()
                    is_removed = True
        return is_removed

    def _tidy(self, folder: Path) -> None:
        """Remove what killed runs left in a folder, once."""
        if folder not in self._tidied and not self._is_dry:
            self._tidied.add(folder)
            files.remove_leftovers(folder / f"a{ending}" for ending in (*ENDINGS, TEMPORARY))

    def _found(self, photo: Path, is_embedded: bool = False) -> tuple[dict[Path, Packet], Inside]:
        """The packets of the sidecars and of the photo, by path, and how it was read."""
        paths = filter(os.path.isfile, chain(*self._beside.sidecars(photo)))
        packets = {path: _packet(path) for path in paths}
        with files.refuse_os_errors(f"cannot read {photo}"):
            inside = read_inside(photo, self._exiftool, is_embedded)
        if is_embedded and inside.problem:
            raise UserError(inside.problem)
        name = f"the XMP of {photo}"
        for number, content in enumerate(inside.packets or [None]):
            packets[photo / f"{number}" if number else photo] = Packet(content, name)
        packets[photo].properties |= inside.properties
        return packets, inside

    def _keeps_words(
        self, photo: str, packets: Mapping[Path, Packet], inside: Inside, words: Words, to: Written
    ) -> bool:
        """Whether a photo gets keywords alone: a person describes it, or may do so unseen."""
        if inside.problem:
            raise UserError(inside.problem)
        if self._places.embed and len(inside.packets) > 1:
            raise UserError(f"the XMP of {photo} is in several parts and was left alone")
        own = ("captioner", "table") if words.by_person else ("captioner",)
        others = (each.text for each in _described(packets) if each.by not in own)
        kept = next((text for text in others if text != words.caption), words.caption)
        if kept != words.caption and words.caption and not self._overwrite:
            to.kept = kept
            to.notes.append(f"{photo} keeps its description {kept!r}; {OPTION} replaces it")
        elif inside.unseen:
            to.notes.append(f"{photo} gets keywords alone: words in {inside.unseen} need exiftool")
        return bool(to.kept or inside.unseen or not words.caption)

    def _check_unshared(self, photo: Path, option: str, place: Path, words: Words) -> None:
        """Refuse a file that would be of another photo of the run, too, or that is another's.

        A text is the photo's whose the sidecar beside it is.
        """
        for other in self._beside.others(photo) if option != "embed" else ():
            sidecar = place if option == "xmp" else self._beside.sidecar(photo, "lightroom")
            digests = {digest_in(sidecar), words.photo_digest} - {""}
            is_shared = len(digests) > 1 or f"{other}" in self._photos
            if is_shared and self.files(f"{other}")[option] == f"{place}":
                hint = ", or give --xmp-for digikam" if option == "xmp" else ""
                raise UserError(f"{place} would be of {photo} and of {other}: rename one{hint}")

    def _write_xmp(
        self, place: Path, packet: Packet, words: Words, keywords_only: bool, done: Written
    ) -> None:
        """Write into a sidecar, or into the photo, which needs no digest."""
        is_sidecar = _is_sidecar(place)
        words = words if is_sidecar else replace(words, photo_digest="")
        merged = merge.merged(packet, words, self._overwrite, keywords_only)
        suffix = self._beside.raw_suffix(place)[1:].upper()
        if packet.is_new and suffix and is_sidecar:
            merged.properties[EXTENSION] = [("", suffix)]
        done.notes += [f"{place}: {note}" for note in merged.notes]
        if self._save(place, packet, merged.properties):
            done.count("xmp" if is_sidecar else "embed", place, merged.words)
            done.replace(place, merged.replaced, f"captioner:before in {place}")

    def _write_text(self, photo: Path, place: Path, words: Words, done: Written) -> None:
        """Write a text, unless it is a person's."""
        old, replaced, copy = texts.content_of(place), list[str](), place
        if not words.caption:
            return
        is_own = not old or texts.is_own(old, words)
        is_own = is_own or texts.is_own(old, words, self._own_captions(photo, words.by_person))
        if not is_own and not self._overwrite:
            done.notes.append(f"{place} holds another text; {OPTION} replaces it")
            done.kept = old
            return
        if not is_own:
            replaced, (_, copy) = [old], texts.copies(place)
            self._put(copy, files.read_bytes(place))
        if self._put(place, f"{words.line}\n".encode(errors="backslashreplace")):
            done.count("text", place, [words.line])
            done.replace(place, replaced, f"{copy}")

    def _own_captions(self, photo: Path, with_tables: bool) -> Sequence[str]:
        """The captions that XMP says captioner wrote. with_tables: also people's, from tables."""
        writers = ("captioner", "table") if with_tables else ("captioner",)
        with suppress(UserError):
            return [each.text for each in self.said(f"{photo}") if each.by in writers]
        return ()

    def _undo_text(self, photo: Path, place: Path, words: Words | None, done: Written) -> None:
        """Put back the last text that a caption replaced, or remove a caption that replaced none.

        Words of a person that replaced none may have been the text before: they stay.
        """
        content, (last, unused) = texts.content_of(place), texts.copies(place)
        own = {*self._own_captions(photo, with_tables=last is not None)}
        if words and (last or not words.by_person):
            own |= {words.caption, words.line}
        self._put(unused, None)
        if content not in own:
            done.kept = content
            return
        done.count("text", place, [content])
        self._put(place, files.read_bytes(last) if last else None)
        if last:
            self._put(last, None)

    def _save(self, place: Path, packet: Packet, new: Properties) -> bool:
        """Write the values of a packet into a sidecar or photo; returns whether it changes.

        What captioner made goes if it is left empty.
        """
        iptc = merge.iptc_changes(packet.properties, new)
        is_changed = packet.update(new)
        is_gone = is_changed and merge.MADE in packet.properties and packet.is_empty
        if _is_sidecar(place) and is_changed:
            self._put(place, None if is_gone else packet.content)
        elif is_changed or iptc:
            block = packet.content if is_changed else None
            self._exiftool.write(place, b"" if is_gone else block, iptc, self._is_dry)
        return is_changed or bool(iptc)

    def _put(self, place: Path, content: bytes | None) -> bool:
        """Write a file unless it is so, or remove it (None); returns whether it changes.

        In a dry run, check that it can be.
        """
        if content == (files.read_bytes(place) if os.path.lexists(place) else None):
            return False
        if self._is_dry:
            files.check_writable(f"writing {place}", Path(os.path.realpath(place)).parent)
        elif content is None:
            place.unlink(missing_ok=True)
        else:
            files.write_bytes(place, content)
        return True


def _described(packets: Mapping[Path, Packet]) -> list[Description]:
    return [
        Description(text, "sidecar" if _is_sidecar(path) else "photo", writer)
        for path, packet in packets.items()
        for text, writer in merge.described(packet).items()
    ]


def _packet(path: Path) -> Packet:
    return Packet(files.read_bytes(path), f"{path}")


def _is_sidecar(path: Path) -> bool:
    return path.suffix.lower() == ".xmp"


def _check_kind(photo: Path) -> None:
    """Raise `UserError` if a file is no photo, by its name."""
    kind = mimetypes.guess_type(photo.name)[0] or "image/"
    if _is_sidecar(photo) or not kind.startswith("image/"):
        raise UserError(f"{photo} is not a photo")
