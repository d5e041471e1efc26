"""Draws captions: panels, GIFs and word pictures of each photo, and its part of a page."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from captioner import files
from captioner.caption.caption import DRAWN_SIDE, Caption
from captioner.errors import UserError
from captioner.outputs.options import OutputOptions, names_a_file
from captioner.render.overlay import WORD_PICTURE, save_word_images
from captioner.render.page import PageItem
from captioner.vision.images import ImageSource, load_image


class Drawings:
    """Draws photos where options say, as large as drawings are: the model may see fewer pixels."""

    def __init__(self, options: OutputOptions, photos: Mapping[str, ImageSource]) -> None:
        for path in filter(names_a_file, filter(None, (options.overlay, options.gif))):
            if (count := len(photos)) > 1:
                raise UserError(f"{path} is one file for {count} photos; give a folder, as maps/")
        self._options = options
        self._photos = photos
        self._names = output_names(photos)
        self._inputs = {files.real_path(photo) for photo in photos}
        seconds = options.decoding_seconds
        self._load = partial(load_image, sufficient_side=DRAWN_SIDE, decoding_seconds=seconds)

    def on_photo(self, caption: Caption) -> Caption:
        """The caption with its photo loaded, for `write` and `page_item`."""
        assert caption.region is not None
        return caption.of_photo(self._load(self._photos[caption.name or ""]), caption.region)

    def files(self, photo: str) -> Iterator[tuple[str, Path]]:
        """A photo's drawings, with their options."""
        options, name = self._options, self._names[photo]
        drawn = [("overlay", options.overlay, ".png"), ("gif", options.gif, ".gif")]
        for option, path, suffix in [*drawn, ("words", options.words, "")]:
            if path:
                is_file = suffix and names_a_file(path)
                yield option, Path(path) if is_file else Path(path, name + suffix)

    def write(self, caption: Caption, option: str, path: Path) -> None:
        """Write one of the `files` of a caption on its photo."""
        strength = self._options.strength
        if option == "overlay":
            caption.overlay(path, _title(caption), strength)
        elif option == "gif":
            caption.gif(path, strength)
        else:
            with files.refuse_os_errors(f"cannot replace the pictures in {path}"):
                for picture in path.glob("*_*"):  # Those of an earlier caption.
                    is_photo = files.real_path(picture) in self._inputs
                    if WORD_PICTURE.fullmatch(picture.name) and not is_photo:
                        picture.unlink()
            save_word_images(path, *caption.drawn(), strength)

    def page_item(self, caption: Caption, by_person: str) -> PageItem:
        """The part of a page for a photo, below which stands what a person says instead."""
        name, title = caption.name or "", _title(caption)
        page = caption.page_item(f"{title}: {by_person}" if by_person else title)
        folder = os.path.dirname(self._options.html or "") or os.curdir
        is_file = isinstance(self._photos[name], str)
        path = Path(os.path.relpath(name, folder)).as_posix() if is_file else title
        return replace(page, path=path, folder=os.path.dirname(self._names[name]))


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
