"""Captioning many photos into files: a bad photo is reported, the others are captioned."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from captioner.errors import UserError
from captioner.files import write_json, write_text
from captioner.render import (
    PageCaption,
    PageItem,
    panels,
    save_gif,
    save_html,
    save_picture,
    save_word_images,
)
from captioner.render.region import fit
from captioner.vision.find_images import find_images
from captioner.vision.images import load_image

if TYPE_CHECKING:
    from captioner.caption import Caption, Captioner, SearchOptions

_PAGE_SIDE = 1000


@dataclass(frozen=True)
class Captioned:
    """A photo that was captioned."""

    path: str
    photo: Image.Image
    caption: Caption


@dataclass(frozen=True)
class Failed:
    """A photo that could not be captioned, and one sentence that says why."""

    path: str
    reason: str


def photo_paths(paths: Sequence[str]) -> tuple[list[str], list[Failed]]:
    """What files, folders and patterns name, and which of them named nothing usable."""
    found: list[str] = []
    failed: list[Failed] = []
    for path in paths:
        try:
            found += [os.fspath(image) for image in find_images([path])]
        except UserError as error:
            failed.append(Failed(path, str(error)))
    return found, failed


def caption_photos(
    captioner: Captioner,
    paths: Sequence[str],
    search: SearchOptions | None = None,
    batch_size: int = 16,
) -> Iterator[Captioned | Failed]:
    """Caption photos in order, a batch at a time; each gives a `Captioned` or a `Failed`."""
    generator = (search or captioner.search).generator()  # One for all batches.
    for first in range(0, len(paths), batch_size):
        loaded: list[tuple[str, Image.Image | UserError]] = []
        for path in paths[first : first + batch_size]:
            try:
                loaded.append((path, load_image(path)))
            except UserError as error:
                loaded.append((path, error))
        photos = [photo for _, photo in loaded if isinstance(photo, Image.Image)]
        captions = iter(captioner.caption(photos, search, batch_size, generator))
        for path, photo in loaded:
            if isinstance(photo, UserError):
                yield Failed(path, str(photo))
            else:
                yield Captioned(path, photo, next(captions))


@dataclass
class Outputs:
    """The files that captions go to. Each may be None, for not wanted.

    json, csv, html: one file for all photos, written by `finish`.
    overlay: a picture (`.png`, `.jpg`) when `photos` is 1, else a folder with one a photo: the
        photo with one panel a word. gif: likewise, animated. words: a folder, with a folder a
        photo when there are several, and in it one PNG a word.
    strength: of the overlays, in [0, 1].

    Raises `UserError` for a file name where a folder is needed.
    """

    photos: int
    json: str | None = None
    csv: str | None = None
    html: str | None = None
    overlay: str | None = None
    gif: str | None = None
    words: str | None = None
    strength: float = 0.8
    _records: list[dict[str, Any]] = field(default_factory=list)
    _page: list[PageItem] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1:
            raise UserError(f"strength {self.strength} is not between 0 and 1")
        for option, path in (("overlay", self.overlay), ("gif", self.gif)):
            if path and self.photos > 1 and Path(path).suffix and not Path(path).is_dir():
                raise UserError(
                    f"--{option} {path} is one file, but there are {self.photos} photos; "
                    "give a folder"
                )

    def add(self, item: Captioned) -> None:
        """Write what belongs to one photo, and keep what belongs to all."""
        caption = item.caption
        self._records.append({"image": item.path, **caption.as_dict()})
        region = caption.region
        assert region is not None  # Captions of photos always have one.
        name = self._unique_name(item.path)
        if caption.words:
            look = (item.photo, caption.words, caption.attention, region)
            if self.overlay:
                save_picture(
                    self._place(self.overlay, name, ".png"),
                    panels(
                        *look,
                        title=Path(item.path).name,
                        probabilities=[math.exp(p) for p in caption.word_log_probabilities],
                        strength=self.strength,
                    ),
                )
            if self.gif:
                save_gif(self._place(self.gif, name, ".gif"), *look, strength=self.strength)
            if self.words:
                folder = Path(self.words) / name if self.photos > 1 else Path(self.words)
                save_word_images(folder, *look, strength=self.strength)
        if self.html:
            photo, region = fit(item.photo, region, _PAGE_SIDE, enlarge=False)
            versions = [
                PageCaption(one.words, one.attention, one.log_probability)
                for one in (caption, *caption.alternatives)
                if one.words
            ]
            if versions:
                self._page.append(PageItem(photo, region, versions, Path(item.path).name))

    def finish(self) -> None:
        """Write the files that hold all photos."""
        if self.json:
            write_json(self.json, self._records)
        if self.csv:
            write_text(self.csv, self._table())
        if self.html and self._page:
            save_html(self.html, self._page, strength=self.strength)

    def _table(self) -> str:
        """One row a photo, and one more for each alternative caption."""
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(["image", "rank", "caption", "log_probability"])
        for record in self._records:
            versions = [record, *record.get("alternatives", [])]
            for rank, version in enumerate(versions, start=1):
                writer.writerow(
                    [record["image"], rank, version["caption"], version["log_probability"]]
                )
        return table.getvalue()

    def _place(self, path: str, name: str, suffix: str) -> Path:
        given = Path(path)
        if self.photos == 1 and given.suffix and not given.is_dir():
            return given
        return given / f"{name}{suffix}"

    def _unique_name(self, path: str) -> str:
        """The file's own name without its suffix, numbered where two photos share it."""
        stem = Path(path).stem
        name, number = stem, 2
        while name in self._names:
            name, number = f"{stem}-{number}", number + 1
        self._names.add(name)
        return name
