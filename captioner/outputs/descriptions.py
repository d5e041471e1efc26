"""Describes photos: in XMP sidecars and texts beside them, and in themselves."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

from captioner import files
from captioner.caption.caption import Caption, sentence
from captioner.data.sidecars import folded, read_sidecar, sidecars, spellings, words_of_person
from captioner.data.xmp import Description
from captioner.errors import UserError, counted, on_a_line
from captioner.model_folders import DEMO_PHOTO
from captioner.outputs.embedding import TEMPORARY, Embedder, check_exiftool
from captioner.outputs.lines import formatted_caption
from captioner.outputs.options import OutputOptions
from captioner.outputs.records import Record, caption_of, is_by_person
from captioner.text.languages import ENGLISH
from captioner.vision.images import ImageSource, Report, ignore
from captioner.vision.raw import RAW_SUFFIXES

_OPTION = "--overwrite-descriptions"
SHARED = "the file beside it would be of another photo, too, and was not written"
"""A problem of each such photo in records; `Descriptions` reports it once for all."""


class Written(NamedTuple):
    """What became of a photo's caption.

    files: paths by option, also of a text of a person that stays. kept: a person's words that stay.
    changes: files that get other contents.
    """

    files: Mapping[str, str] = {}
    problems: Sequence[str] = ()
    kept: str = ""
    changes: int = 0


LEFT_OUT = Written()
"""Of a photo for which nothing is to be written."""


class Descriptions:
    """Writes captions as --xmp, --text and --embed say; --min-confidence leaves some out."""

    def __init__(
        self, options: OutputOptions, photos: Mapping[str, ImageSource], report: Report
    ) -> None:
        are_files = all(isinstance(source, str) for source in photos.values())
        if options.describes_photos and (not are_files or str(DEMO_PHOTO) in photos):
            raise UserError("--xmp, --text and --embed need photo files, not -, --demo or shards")
        if options.embed:
            check_exiftool()
        self._options = options
        self._report = report
        self._say = ignore if options.quiet else report
        self._embedder = Embedder(options.decoding_seconds)
        self._notes: Counter[str] = Counter()
        self._names = cache(spellings)
        self._listed = cache(files.folder_names)
        # Found before any is written: a new sidecar may change where another photo's goes.
        self._places = {photo: [*self._beside(photo)] for photo in photos}
        owners: dict[Path, dict[str, str]] = defaultdict(dict)  # The photos beside each file.
        for photo, places in self._places.items():
            for _, path in places:
                owners[path].setdefault(files.real_path(photo), photo)
        self._shared = {path: [*of.values()] for path, of in owners.items() if len(of) > 1}
        if self._shared:
            path, of = next(iter(self._shared.items()))
            not_written = f"{counted(len(self._shared), 'file')} not written"
            example = f"such as {path} of {' and of '.join(of)}"
            hint = ", or give --xmp-for digikam" if options.xmp == "lightroom" else ""
            report(f"{not_written}: it would be of several photos, {example}; rename one{hint}")
        if not options.dry_run:
            embedded = (Path(photo).with_suffix(TEMPORARY) for photo in photos if options.embed)
            files.remove_leftovers(chain(owners, embedded))

    def files(self, photo: str, confidence: float | None) -> Sequence[tuple[str, Path]]:
        """A photo's sidecar, text and itself, with their options, if its caption is sure enough."""
        return self._places[photo] if (confidence or 0) >= self._options.min_confidence else ()

    def has_text(self, photo: str) -> bool:
        """Whether there is a text beside a photo: an empty one is none."""
        texts = [path for option, path in self._places[photo] if option == "text"]
        return any(os.path.lexists(path) and files.read_text(path).strip() for path in texts)

    def write_record(self, record: Record) -> Written:
        """Write the caption of a record; a person's also in place of a text with the model's."""
        photo = record["image"]
        caption = caption_of(record, photo).with_keywords(self._options.keywords)
        by_model = sentence(record.get("words", ()))
        return self.write(photo, caption, is_by_person(record), by_model)

    def write(
        self, photo: str, caption: Caption, by_person: bool = False, by_model: str = ""
    ) -> Written:
        """Write `files`, or say what would be written.

        A description by a person stays: sidecars and the photo then receive the keywords alone.

        by_person: a person wrote the caption. by_model: a sentence that it replaces in texts.
        """
        if not (caption.words and self._options.describes_photos):
            return LEFT_OUT
        places = self.files(photo, caption.confidence)
        if not places:
            self._notes["captions that are not sure enough for sidecars, texts and photos"] += 1
            return LEFT_OUT
        description = self._description(caption, by_person)
        kept, problems = "", []
        try:
            kept = self._words_kept(photo, description)
        except UserError as error:  # The unreadable part may be a person's words.
            problems.append(str(error))
            places = [place for place in places if place[0] == "text"]
        line, by_model = description.caption, by_model or description.caption
        if form := self._options.format:
            versions = [replace(caption, text=text) for text in (line, by_model)]
            line, by_model = (formatted_caption(form, photo, each).strip() for each in versions)
        if kept:
            description = replace(description, keywords_only=True, by_person=False)
            self._say(f"{photo} keeps its description {kept!r}; {_OPTION} replaces it")
        written, changes = {}, 0
        for option, path in places:
            if kept and option == "xmp" and not (description.keywords or os.path.lexists(path)):
                continue  # A new sidecar would be empty.
            try:
                if path in self._shared:
                    raise UserError(SHARED)
                if option == "text":
                    kept_text, is_changed = self._write_text(path, line, by_model)
                    kept = kept_text or kept
                else:
                    is_changed = self._write(option, path, description)
                changes += is_changed
                written[option] = os.fspath(path)
            except UserError as error:
                problems.append(str(error))
        return Written({} if self._options.dry_run else written, problems, kept, changes)

    def _beside(self, photo: str) -> Iterator[tuple[str, Path]]:
        """A photo and the files beside it, with their options.

        Lightroom reads `photo.xmp`, the name in Adobe's XMP Specification Part 3, which is written
        unless there is a `photo.jpg.xmp` alone, or it is a raw file's, such as of the `photo.nef`
        beside it; digiKam and darktable read `photo.jpg.xmp`.
        """
        path = Path(photo)
        if self._options.embed:
            yield "embed", path
        if self._options.xmp:
            short, long = sidecars(path, self._names)
            is_of_other = self._raw_suffix(path) not in ("", path.suffix.lower())
            is_long = self._options.xmp != "lightroom" or is_of_other
            places = long if is_long else [*short, *long]
            yield "xmp", next(filter(os.path.exists, places), places[0])
        if self._options.text:
            yield "text", files.existing_path(path.with_suffix(".txt"), self._listed)

    def _raw_suffix(self, path: Path) -> str:
        """The suffix of a raw file of this name, whose is `photo.xmp`; "" without one."""
        names = self._names(path.parent)
        found = (suffix for suffix in sorted(RAW_SUFFIXES) if folded(path.stem + suffix) in names)
        return next(found, "")

    def _description(self, caption: Caption, by_person: bool) -> Description:
        confidence = None if by_person else caption.shown_confidence
        text, language = on_a_line(caption.text), caption.language or ENGLISH
        overwrite = self._options.overwrite_descriptions
        keywords = caption.keywords
        return Description(text, keywords, language, confidence, by_person, overwrite=overwrite)

    def _words_kept(self, photo: str, description: Description) -> str:
        """The description of a photo by a person that stays, unless it is the caption."""
        if description.overwrite or not (self._options.xmp or self._options.embed):
            return ""
        words = words_of_person(Path(photo), self._names, but_written=description.by_person)
        return "" if words == description.caption else words

    def _write(self, option: str, path: Path, description: Description) -> bool:
        """Write a sidecar or into a photo; returns whether it changes."""
        if option == "embed":
            merged = self._embedder.embed(path, description, self._options.dry_run)
            is_changed = not merged.is_there
        else:
            packet = read_sidecar(path)
            if not os.path.lexists(path):
                packet.set_extension(self._raw_suffix(path)[1:].upper())
            merged = packet.merge(description)
            is_changed = self._replace(path, packet.as_file())
        if merged.is_taken_out and not description.keywords_only:
            self._say(f"{path}: a person took its caption out; {_OPTION} writes it again")
        is_described = description.keywords_only or merged.is_taken_out
        caption = [] if is_described else [description.caption]
        copy = f"captioner:before in {path}"
        if is_changed:
            self._announce(path, [*caption, *merged.keywords], merged.replaced, copy)
        return is_changed

    def _write_text(self, path: Path, line: str, by_model: str) -> tuple[str, bool]:
        """Write a text; returns a person's that stays, and whether the file changes."""
        content, own = (f"{text}\n".encode(errors="backslashreplace") for text in (line, by_model))
        old = files.read_bytes(path) if os.path.lexists(path) else b""
        copy = next(path for path in copies(path) if not os.path.lexists(path))
        replaced = []
        if old.strip() not in (b"", content.strip(), own.strip()):
            if not self._options.overwrite_descriptions:
                self._say(f"{path} holds another text; {_OPTION} replaces it")
                return files.read_text(path).strip(), False
            replaced = [old.decode(errors="replace").strip()]
            self._replace(copy, old)
        is_changed = self._replace(path, content)
        if is_changed:
            self._announce(path, [line], replaced, f"{copy}")
        return "", is_changed

    def _replace(self, path: Path, content: bytes) -> bool:
        """Write a file unless it is so; in a dry run, check that it can be. Whether it changes."""
        if os.path.isfile(path) and files.read_bytes(path) == content:
            return False
        if not self._options.dry_run:
            files.write_bytes(path, content)
            return True
        with files.refuse_os_errors(f"cannot write {path}"), suppress(FileNotFoundError):
            os.stat(path)  # Its name may be too long.
        files.check_writable(f"writing {path}", Path(os.path.realpath(path)).parent)
        return True

    def _announce(self, path: Path, texts: list[str], replaced: Sequence[str], copy: str) -> None:
        """Name what a dry run would write, and the words of a person that are replaced."""
        if self._options.dry_run:
            self._report(f"{path} would get {', '.join(map(repr, texts)) or 'nothing'}")
        if replaced:
            words = ", ".join(map(repr, replaced))
            self._say(f"{path}: {_OPTION} replaces {words}; a copy: {copy}")
            self._notes["files in which words of people are replaced"] += 1

    def close(self) -> None:
        """End exiftool, and report what was left out."""
        self._embedder.close()
        for note, number in self._notes.items():
            self._say(f"{note}: {number:,}")


def copies(path: Path) -> Iterator[Path]:
    """Where copies of a text go, in their order: `photo.txt.before`, `photo.txt.before2`."""
    return (path.with_name(f"{path.name}.before{end}") for end in chain([""], count(2)))
