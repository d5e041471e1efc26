"""Writes the captions of photos as tables, pictures and a page."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

from captioner.caption.caption import DRAWN_SIDE
from captioner.caption.captioner import Captioned
from captioner.cli.caption_tables import CaptionTables
from captioner.cli.output_files import check_places, keys_of, refuse_to_replace_a_photo
from captioner.cli.sidecars import Sidecars
from captioner.errors import UserError
from captioner.files import remove_temporaries, try_all
from captioner.outcomes import Failed
from captioner.render import PageItem, save_html, save_word_images
from captioner.render.save import PAGE_SUFFIXES, PICTURE_SUFFIXES
from captioner.render.word_images import WORD_PICTURE

_SUFFIXES = {
    "json": (".json",),
    "jsonl": (".jsonl",),
    "csv": (".csv",),
    "html": PAGE_SUFFIXES,
    "overlay": PICTURE_SUFFIXES,
    "gif": (".gif",),
    "words": (),
}
"""The file name endings that fit each option."""


@dataclass
class Outputs:
    """The output files; None for those not wanted.

    paths: the photos to caption. language: of translated captions. model: that writes them, as it
        was named. Other fields are options of `captioner caption`. Files of photos from several
        folders are in folders like theirs.

    Raises `UserError`, before anything is written, for a file where a folder is needed or the
    reverse, a wrong suffix, a path that cannot be written, two outputs in one file, an output that
    would replace a photo, and a table or page that exists.
    """

    paths: Sequence[str]
    json: str | None = None
    jsonl: str | None = None
    csv: str | None = None
    html: str | None = None
    overlay: str | None = None
    gif: str | None = None
    words: str | None = None
    strength: float = 0.8
    sidecars: Sidecars = field(default_factory=Sidecars)
    language: str | None = None
    model: str = ""
    resume: bool = False
    overwrite: bool = False
    _page: list[PageItem] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise UserError(f"strength {self.strength} is not between 0 and 1")
        for option, suffixes in _SUFFIXES.items():
            self._check_kind(option, getattr(self, option), suffixes)
        if self.resume and self.html:
            raise UserError("--resume cannot add to the page of --html; give one of the two")
        self.tables = CaptionTables(self.json, self.jsonl, self.csv, self.model)
        self._names = _output_names(self.paths)
        folders = self._check_places()
        self.sidecars.check(list(self._names))
        self.finished = self._find_finished()
        for folder in folders:
            remove_temporaries(folder)

    @property
    def drawn_side(self) -> int:
        """Pixels of a photo's side that suffice for drawings; 0 if nothing is drawn."""
        return DRAWN_SIDE if any((self.html, self.overlay, self.gif, self.words)) else 0

    def add(self, item: Captioned | Failed) -> None:
        """Write a photo's own files, and collect its record for the common ones.

        Raises `UserError` if something cannot be written, after doing the rest; the record has the
        error then.
        """
        if isinstance(item, Failed):
            self.tables.add(item.name, {"error": item.reason})
            return
        record = item.caption.as_dict()
        files: dict[str, str] = {}
        if item.caption.words:
            parts = [partial(self._add_to_page, item)]
            for option, path in self._files_of(item.name):
                parts.append(partial(self._write, option, path, item, files))
            try:
                try_all(parts)
            except UserError as error:
                record["error"] = str(error)
        if files:
            record["files"] = files
        self.tables.add(item.name, record)
        if "error" in record:
            raise UserError(record["error"])

    def finish(self) -> None:
        """Write the common files, if there is anything to write.

        Raises `UserError` if one cannot be written, after writing the others.
        """
        try_all([self.tables.finish, self._write_page])

    def _find_finished(self) -> set[str]:
        """The photos that need no caption. Raises `UserError` for results that would be lost."""
        if self.resume:
            finished = self.tables.resume(self.paths, self._files_of, self.language)
            if finished is not None:
                return finished
        for option, path in self._common_files():
            if not self.overwrite and path.is_file() and path.stat().st_size:
                resume = "" if option == "html" else ", --resume adds to it"
                raise UserError(f"--{option} {path} exists; --overwrite replaces it{resume}")
        return set()

    def _files_of(self, photo: str) -> Iterator[tuple[str, Path]]:
        """A photo's own files, and the folder of its words, with their options."""
        name = self._names[photo]
        if self.overlay:
            yield "overlay", _output_path(self.overlay, name, ".png")
        if self.gif:
            yield "gif", _output_path(self.gif, name, ".gif")
        if self.words:
            yield "words", Path(self.words) / name
        yield from self.sidecars.paths(photo)

    def _write(self, option: str, path: Path, item: Captioned, files: dict[str, str]) -> None:
        """Write one of `_files_of`, and put its path into `files`."""
        if option == "overlay":
            item.caption.overlay(path, _title(item), self.strength)
        elif option == "gif":
            item.caption.gif(path, self.strength)
        elif option == "words":
            save_word_images(path, *item.caption.drawn(), strength=self.strength)
        else:
            self.sidecars.write(option, path, item.caption)
        files[option] = os.fspath(path)

    def _add_to_page(self, item: Captioned) -> None:
        if self.html:
            self._page.append(item.caption.page_item(_title(item)))

    def _write_page(self) -> None:
        if self.html and self._page:
            save_html(self.html, self._page, strength=self.strength)

    def _check_kind(self, option: str, path: str | None, suffixes: Sequence[str]) -> None:
        """Raise `UserError` for a path that cannot be the option's file or folder."""
        if path == "":
            raise UserError(f"--{option} is empty; it should name a file or folder")
        if path is None or (path == "-" and option in ("json", "jsonl", "csv")):
            return
        if path == "-":
            raise UserError(f"--{option} cannot go to standard output; name a file or folder")
        one_a_photo = option in ("overlay", "gif", "words")
        if one_a_photo and not _names_a_file(path):
            return
        if Path(path).suffix.lower() not in suffixes and not Path(path).is_dir():
            wanted = " or ".join([*suffixes, *(["a slash for a folder"] if one_a_photo else [])])
            raise UserError(f"--{option} {path} must end in {wanted}")
        if one_a_photo and len(self.paths) > 1:
            raise UserError(
                f"--{option} {path} is one file, but there are {len(self.paths)} photos; "
                "give a folder, with a slash at its end"
            )

    def _common_files(self) -> Iterator[tuple[str, Path]]:
        """The files of all photos together, with their options."""
        yield from self.tables.files()
        if self.html:
            yield "html", Path(self.html)

    def _check_places(self) -> list[Path]:
        """The folders that are written to. Raises `UserError` for files that cannot be."""
        outputs = list(chain(self._common_files(), *map(self._files_of, self._names)))
        files = [(f"--{option}", path) for option, path in outputs if option != "words"]
        folders = [("--words", path) for option, path in outputs if option == "words"]
        for option, folder in folders:
            for old in folder.glob("*.png"):
                if WORD_PICTURE.fullmatch(old.name):
                    refuse_to_replace_a_photo(option, old)
        return check_places(files, keys_of(("PATH", path) for path in self.paths), folders)


def _title(item: Captioned) -> str:
    """The name of the photo's file; none for standard input."""
    return "" if item.name == "-" else Path(item.name).name


def _names_a_file(path: str) -> bool:
    return bool(Path(path).suffix) and not path.endswith(("/", os.sep)) and not Path(path).is_dir()


def _output_path(path: str, name: str, suffix: str) -> Path:
    return Path(path) if _names_a_file(path) else Path(path) / f"{name}{suffix}"


def _output_names(paths: Sequence[str]) -> dict[str, str]:
    """The path of every photo below the folder that holds all of them, without its suffix.

    Photos that would share a name keep their suffix; where they still do, they are numbered. Names
    that differ in case alone count as shared, as on many file systems. `-` is standard input.
    """
    folders = {path: Path(os.path.abspath(path)).parent.parts[1:] for path in paths if path != "-"}
    is_common = [len(set(level)) == 1 for level in zip(*folders.values(), strict=False)]
    top = [*is_common, False].index(False)
    plain: dict[str, str] = {}
    for path in paths:
        stem = "standard_input" if path == "-" else Path(path).stem
        plain[path] = os.path.join(*folders.get(path, ())[top:], stem)
    shared = Counter(name.casefold() for name in plain.values())
    taken: set[str] = set()
    names: dict[str, str] = {}
    for path, name in plain.items():
        if shared[name.casefold()] > 1:
            name += Path(path).suffix
        unique, number = name, 2
        while unique.casefold() in taken:
            unique, number = f"{name}-{number}", number + 1
        taken.add(unique.casefold())
        names[path] = unique
    return names
