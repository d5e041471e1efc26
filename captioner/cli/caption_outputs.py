"""Writes the captions of photos as tables, pictures and a page."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from captioner.caption.caption_photos import Captioned
from captioner.caption.written_caption import DRAWN_SIDE
from captioner.cli.sidecars import Sidecars
from captioner.csv_tables import csv_text
from captioner.errors import UserError
from captioner.files import (
    check_writable,
    file_keys,
    json_text,
    real_path,
    try_all,
    write_text,
)
from captioner.render import PageItem, save_html, save_word_images
from captioner.render.save import PAGE_SUFFIXES, PICTURE_SUFFIXES
from captioner.render.word_images import WORD_PICTURE

SAVE_SECONDS = 30.0
"""Shortest time between two writes of `Outputs.save_so_far`."""

_LONGEST_NAME = 200
"""Bytes of a file name before additions; file systems allow 255."""

_SUFFIXES = {
    "json": (".json",),
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

    paths: the photos to caption.
    json, csv, html: one file for all photos, written by `finish`; `-` for json or csv is standard
        output.
    overlay: a picture with a panel a word: a file for one photo, else a folder. gif: likewise,
        animated. words: a folder with a sub-folder a photo, of one PNG a word. A slash at the end
        marks a folder. Files of photos from several folders are in folders like theirs.
    strength: of the overlays, in [0, 1].
    sidecars: the files beside each photo.

    Raises `UserError`, before anything is written, for a file where a folder is needed or the
    reverse, a wrong suffix, a path that cannot be written, two outputs in one file, and an output
    that would replace a photo.
    """

    paths: Sequence[str]
    json: str | None = None
    csv: str | None = None
    html: str | None = None
    overlay: str | None = None
    gif: str | None = None
    words: str | None = None
    strength: float = 0.8
    sidecars: Sidecars = field(default_factory=Sidecars)
    _records: list[dict[str, Any]] = field(default_factory=list)
    _page: list[PageItem] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _saved: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise UserError(f"strength {self.strength} is not between 0 and 1")
        for option, suffixes in _SUFFIXES.items():
            self._check_kind(option, getattr(self, option), suffixes)
        self._names = _output_names(self.paths)
        self._check_places()
        self.sidecars.check(list(self._names))

    @property
    def takes_standard_output(self) -> bool:
        """Whether a table goes to standard output, where nothing else should go then."""
        return "-" in (self.json, self.csv)

    @property
    def drawn_side(self) -> int:
        """Pixels of a photo's side that suffice for drawings; 0 if nothing is drawn."""
        return DRAWN_SIDE if any((self.html, self.overlay, self.gif, self.words)) else 0

    def add(self, item: Captioned) -> None:
        """Write a photo's own files, and collect its record for the common ones.

        Raises `UserError` if something cannot be written, after doing the rest.
        """
        self._records.append({"image": item.name, **item.caption.as_dict()})
        name = self._names[item.name]
        if item.caption.words:
            parts = (self._draw_panels, self._draw_gif, self._draw_words, self._add_to_page)
            beside = partial(self.sidecars.write, item.name, item.caption)
            try_all([beside, *(partial(part, item, name) for part in parts)])

    def save_so_far(self) -> None:
        """Write the tables so far, at most every `SAVE_SECONDS`, in case the process is killed.

        Errors are left to `finish`.
        """
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            with contextlib.suppress(UserError):
                self._write_tables(is_last=False)
            self._saved = time.monotonic()

    def finish(self) -> None:
        """Write the common files, if anything was captioned; standard output in any case.

        Raises `UserError` if one cannot be written, after writing the others.
        """
        try_all([self._write_tables, self._write_page])

    def _draw_panels(self, item: Captioned, name: str) -> None:
        if self.overlay:
            path = _output_path(self.overlay, name, ".png")
            item.caption.overlay(path, Path(item.name).name, self.strength)

    def _draw_gif(self, item: Captioned, name: str) -> None:
        if self.gif:
            item.caption.gif(_output_path(self.gif, name, ".gif"), self.strength)

    def _draw_words(self, item: Captioned, name: str) -> None:
        if self.words:
            folder = Path(self.words) / name
            save_word_images(folder, *item.caption.drawn(), strength=self.strength)

    def _add_to_page(self, item: Captioned, name: str) -> None:
        if self.html:
            self._page.append(item.caption.page_item(Path(item.name).name))

    def _write_tables(self, is_last: bool = True) -> None:
        """Write the tables: files if there are records, standard output only as the last time."""
        writers: list[Callable[[], object]] = []
        for path, text in ((self.json, self._json_text), (self.csv, self._csv_text)):
            if path == "-" and is_last:
                writers.append(partial(sys.stdout.write, text()))
            elif path and path != "-" and self._records:
                writers.append(partial(write_text, path, text()))
        try_all(writers)

    def _write_page(self) -> None:
        if self.html and self._page:
            save_html(self.html, self._page, strength=self.strength)

    def _json_text(self) -> str:
        return json_text(self._records)

    def _csv_text(self) -> str:
        """One row a caption, with columns of the confidence if the model has one."""
        columns = ["caption", "log_probability", "score"]
        if any("confidence" in record for record in self._records):
            columns += ["confidence", "sure", "familiar"]
        rows = [
            [record["image"], rank, *(version.get(name) for name in columns)]
            for record in self._records
            for rank, version in enumerate([record, *record.get("alternatives", [])], start=1)
        ]
        return csv_text(["image", "rank", *columns], rows)

    def _check_kind(self, option: str, path: str | None, suffixes: Sequence[str]) -> None:
        """Raise `UserError` for a path that cannot be the option's file or folder."""
        if path == "":
            raise UserError(f"--{option} is empty; it should name a file or folder")
        if path is None or (path == "-" and option in ("json", "csv")):
            return
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

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Every file whose name is known, with its option."""
        for option in ("json", "csv", "html"):
            path = getattr(self, option)
            if path and (path != "-" or option == "html"):
                yield option, Path(path)
        for option, suffix in (("overlay", ".png"), ("gif", ".gif")):
            if path := getattr(self, option):
                for name in self._names.values():
                    yield option, _output_path(path, name, suffix)
        for photo in self._names:
            yield from self.sidecars.paths(photo)

    def _check_places(self) -> None:
        photos = {key for path in self.paths for key in file_keys(path)}
        taken: dict[object, str] = {}
        folders: dict[Path, str] = {}
        if self.json == self.csv == "-":
            raise UserError("--json and --csv cannot both be standard output")
        for option, file in self._files():
            if file.is_dir():
                raise UserError(f"--{option} {file} is a folder, not a file")
            if photos & file_keys(file):
                raise UserError(
                    f"--{option} would replace {file}, which is one of the photos to caption; "
                    "give another place"
                )
            other = taken.setdefault(real_path(file), option)
            if other != option:
                raise UserError(f"--{other} and --{option} are the same file, {file}")
            folders.setdefault(file.parent, option)
        if self.words:
            places = [Path(self.words) / name for name in self._names.values()]
            folders.update((place, "words") for place in places)
            within = {real_path(place) for place in places}
            for photo in map(Path, self.paths):
                if real_path(photo.parent) in within and WORD_PICTURE.fullmatch(photo.name):
                    raise UserError(
                        f"--words {self.words} holds {photo}, which is one of the photos to "
                        "caption and might be replaced; give another folder"
                    )
        for folder, option in folders.items():
            real = Path(real_path(folder))
            for above in (real, *real.parents):
                if os.fspath(above) in taken:
                    other = taken[os.fspath(above)]
                    raise UserError(f"--{other} {above} is a file, but --{option} needs a folder")
            check_writable(f"--{option}", folder)


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
        while len(stem.encode("utf-8", "surrogatepass")) > _LONGEST_NAME:
            stem = stem[:-1]
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
