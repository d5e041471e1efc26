"""Sinks that draw: panels, GIFs and word pictures of each photo, and a page of all."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from captioner import files
from captioner.caption.caption import Caption
from captioner.errors import UserError
from captioner.outputs.options import names_a_file
from captioner.outputs.record import PhotoRecord
from captioner.outputs.sink import Run, Sink
from captioner.render.overlay import (
    PICTURE_SUFFIXES,
    WORD_PICTURE,
    check_suffix,
    save_word_images,
)
from captioner.render.page import PageItem, PageWriter


class Drawing(Sink):
    """A file for each photo, or one of this name for a single photo."""

    option, suffix = "", ""
    suffixes: tuple[str, ...] = ()

    def __init__(self, path: str, run: Run) -> None:
        super().__init__(path, run)
        self._names = output_names(run.photos)
        self._is_file = bool(self.suffix) and names_a_file(path)
        if self._is_file:
            check_suffix(path, self.suffixes)
            if len(run.photos) > 1:
                fault = f"{path} is one file for {len(run.photos)} photos"
                raise UserError(f"{fault}; give a folder, as maps/")

    def files(self, photo: str) -> Mapping[str, str]:
        """The photo's drawing."""
        inside = os.path.join(self.path, self._names[photo] + self.suffix)
        return {self.option: os.fspath(Path(self.path if self._is_file else inside))}

    def draw(self, record: PhotoRecord, caption: Caption) -> None:
        """Draw the caption, unless an earlier run did."""
        if not (record.saved and self.has(record)):
            for option, path in self.files(record.image).items():
                self.write(caption, path)
                record.files = {**record.files, option: path}

    def write(self, caption: Caption, path: str) -> None:
        """Write a caption on its photo."""
        raise NotImplementedError


class Overlay(Drawing):
    """A panel a word."""

    option, suffix, suffixes = "overlay", ".png", PICTURE_SUFFIXES

    def write(self, caption: Caption, path: str) -> None:
        """Write the panels."""
        caption.overlay(path, _title(caption), self.run.options.strength)


class Gif(Drawing):
    """A frame a word."""

    option, suffix, suffixes = "gif", ".gif", (".gif",)

    def write(self, caption: Caption, path: str) -> None:
        """Write the animation."""
        caption.gif(path, self.run.options.strength, self.run.options.width)


class WordMaps(Drawing):
    """A folder for each photo, with a JPEG a word."""

    option = "words"

    def write(self, caption: Caption, path: str) -> None:
        """Write the pictures, in place of those of an earlier caption; photos stay."""
        with files.refuse_os_errors(f"cannot replace the pictures in {path}"):
            for picture in Path(path).glob("*_*"):
                is_photo = files.real_path(picture) in self._inputs
                if WORD_PICTURE.fullmatch(picture.name) and not is_photo:
                    picture.unlink()
        save_word_images(path, *caption.drawn(), self.run.options.strength)

    @cached_property
    def _inputs(self) -> set[str]:
        return set(map(files.real_path, self.run.photos))


class Page(Sink):
    """One page of all photos, on which to point at words."""

    needs_maps = takes_unsure = True

    def __init__(self, path: str, run: Run) -> None:
        super().__init__(path, run)
        options = run.options
        self._page = PageWriter(path, options.strength, options.title or "", options.plain)
        self._names = output_names(run.photos)
        self._drawn: dict[str, PageItem] = {}

    def draw(self, record: PhotoRecord, caption: Caption) -> None:
        """Prepare the part of a photo, below which stands what a person says instead."""
        title, name = _title(caption), record.image
        by_person = record.is_by_person and not caption.given
        item = caption.page_item(f"{title}: {record.to_caption()}" if by_person else title)
        address = Path(os.path.relpath(name, os.path.dirname(self.path) or os.curdir)).as_posix()
        path = address if isinstance(self.run.photos[name], str) else title
        folder = os.path.dirname(self._names[name])
        digest = record.photo_digest
        self._drawn[name] = replace(item, path=path, folder=folder, photo_digest=digest)

    def add(self, record: PhotoRecord) -> None:
        """Add the part."""
        if item := self._drawn.pop(record.image, None):
            self._page.add(item)

    def close(self) -> None:
        """Complete the page; without photos, one that is there stays."""
        self._page.close()


def _title(caption: Caption) -> str:
    name = caption.name or ""
    return "" if name == "-" else Path(name).name


def output_names(photos: Iterable[str]) -> dict[str, str]:
    """The path of every photo below the folder that holds all of them, without its suffix.

    Photos whose names differ in suffix or case alone keep their suffix; `-` is standard input.
    """
    folders = [os.path.dirname(os.path.abspath(photo)) for photo in photos if photo != "-"]
    try:
        top = os.path.commonpath(folders) if folders else ""
        whole = {photo: os.path.relpath(photo, top) for photo in photos}
    except ValueError:  # Two drives of Windows.
        whole = {photo: os.path.abspath(photo).replace(":", "") for photo in photos}
    whole |= {"-": "standard_input"} if "-" in whole else {}
    names = {photo: os.path.splitext(name)[0] for photo, name in whole.items()}
    taken = Counter(name.casefold() for name in chain(whole.values(), names.values()))
    return {
        photo: name if taken[name.casefold()] == 1 else whole[photo]
        for photo, name in names.items()
    }
