"""Draws photos with their maps: panels, words and GIFs in files, and their parts of a page."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from captioner.caption.caption import DRAWN_SIDE, Caption
from captioner.caption.photos import Captioned
from captioner.errors import UserError
from captioner.files import real_path, refuse_os_errors, write_each
from captioner.outcomes import MOST_WORKERS, Failed
from captioner.render.page import PageItem
from captioner.render.save import PICTURE_SUFFIXES, WORD_PICTURE, check_suffix, save_word_images
from captioner.vision.images import ImageSource, load_image


class Drawn(NamedTuple):
    """A photo's caption or failure, and what was drawn: the files by option, its part of the page.

    problems: why the photo or a drawing failed.
    """

    item: Captioned | Failed
    files: Mapping[str, str] = {}
    problems: Sequence[str] = ()
    page: PageItem | None = None


class Drawings:
    """Draws photos where --overlay, --gif and --words say, and for --html.

    Drawings of photos from several folders are in folders like theirs. photos: all, by name.
    Raises `UserError` for options that do not go together.
    """

    def __init__(self, options: argparse.Namespace, photos: Mapping[str, ImageSource]) -> None:
        _check_options(options, photos)
        self._options = options
        self._photos = photos
        self._names = output_names(photos)

    @property
    def workers(self) -> int:
        """How many threads should `draw`; 0 if there is nothing to draw."""
        options = self._options
        is_drawn = options.overlay or options.gif or options.words or options.html
        return min(os.cpu_count() or 1, MOST_WORKERS) if is_drawn else 0

    def draw(self, item: Captioned | Failed, page_only: bool = False) -> Drawn:
        """Write a photo's drawings, and prepare its part of the page. May run in threads.

        page_only: the drawings are there already.
        """
        if isinstance(item, Failed):
            return Drawn(item, problems=(item.reason,))
        if not item.caption.words or not self.workers:
            return Drawn(item)
        name = item.name
        title = "" if name == "-" else Path(name).name
        try:
            caption = self._with_photo(name, item.caption)
            page = self._page_item(name, caption, title) if self._options.html else None
        except UserError as error:
            return Drawn(item, problems=(str(error),))
        drawings = () if page_only else self.files(name)
        write = partial(self._draw, caption=caption, title=title)
        files, problems = write_each(drawings, write)
        return Drawn(item, files, problems, page)

    def files(self, photo: str) -> Iterator[tuple[str, Path]]:
        """A photo's drawings, and the folder of its words, with their options."""
        options, name = self._options, self._names[photo]
        if options.overlay:
            yield "overlay", _output_path(options.overlay, name, ".png")
        if options.gif:
            yield "gif", _output_path(options.gif, name, ".gif")
        if options.words:
            yield "words", Path(options.words) / name

    def _with_photo(self, photo: str, caption: Caption) -> Caption:
        """The caption with its photo as large as drawings are; the model may see fewer pixels."""
        assert caption.region is not None
        loaded = load_image(self._photos[photo], sufficient_side=DRAWN_SIDE)
        return caption.of_photo(loaded, caption.region)

    def _page_item(self, photo: str, caption: Caption, title: str) -> PageItem:
        """A photo's part of the page, with its file from there."""
        page = os.path.dirname(self._options.html) or os.curdir
        is_file = isinstance(self._photos[photo], str)
        path = Path(os.path.relpath(photo, page)).as_posix() if is_file else ""
        folder = os.path.dirname(self._names[photo])
        return replace(caption.page_item(title), path=path, folder=folder)

    def _draw(self, option: str, path: Path, caption: Caption, title: str) -> None:
        """Write one of `files`."""
        strength = self._options.strength
        if option == "overlay":
            caption.overlay(path, title, strength)
        elif option == "gif":
            caption.gif(path, strength)
        else:
            self._remove_word_pictures(path)
            save_word_images(path, *caption.drawn(), strength=strength)

    def _remove_word_pictures(self, folder: Path) -> None:
        """Remove what an earlier caption left; such a folder needs --overwrite or --resume."""
        photos = set(map(real_path, self._photos))
        with refuse_os_errors(f"cannot replace the pictures in {folder}"):
            for path in folder.glob("*_*"):
                if WORD_PICTURE.fullmatch(path.name) and real_path(path) not in photos:
                    path.unlink()


def _check_options(options: argparse.Namespace, photos: Collection[str]) -> None:
    if not 0 <= options.strength <= 1:
        raise UserError(f"--strength {options.strength} is not between 0 and 1")
    if "-" in (options.overlay, options.gif, options.words):
        raise UserError("a drawing cannot go to standard output; name a file or folder")
    for path, suffixes in ((options.overlay, PICTURE_SUFFIXES), (options.gif, (".gif",))):
        if path and _names_a_file(path):
            check_suffix(path, suffixes)
            if len(photos) > 1:
                raise UserError(
                    f"{path} is one file, but there are {len(photos)} photos; give a folder, with "
                    "a slash at its end"
                )


def _names_a_file(path: str) -> bool:
    return bool(Path(path).suffix) and not path.endswith(("/", os.sep)) and not Path(path).is_dir()


def _output_path(path: str, name: str, suffix: str) -> Path:
    return Path(path) if _names_a_file(path) else Path(path) / f"{name}{suffix}"


def output_names(photos: Iterable[str]) -> dict[str, str]:
    """The path of every photo below the folder that holds all of them, without its suffix.

    Photos that would share a name keep their suffix. Names that differ in case alone count as
    shared, as on many file systems. `-` is standard input.
    """
    folders = {photo: Path(os.path.abspath(photo)).parent.parts[1:] for photo in photos}
    folders.pop("-", None)
    is_common = [len(set(level)) == 1 for level in zip(*folders.values(), strict=False)]
    top = [*is_common, False].index(False)
    names = {}
    for photo in photos:
        stem = "standard_input" if photo == "-" else Path(photo).stem
        names[photo] = os.path.join(*folders.get(photo, ())[top:], stem)
    shared = Counter(map(str.casefold, names.values()))
    return {
        photo: name + Path(photo).suffix if shared[name.casefold()] > 1 else name
        for photo, name in names.items()
    }
