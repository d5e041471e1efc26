"""Puts images and captions together and applies the rules that hold for every source."""

from __future__ import annotations

import os.path
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from captioner.data.records import CaptionedImage, CaptionSet
from captioner.data.source_problems import OnProblem, Problems
from captioner.errors import UserError


@dataclass
class _Image:
    record: str
    path: Path
    number: int | None
    captions: list[str] = field(default_factory=list)
    tokens: list[tuple[str, ...] | None] = field(default_factory=list)


class CaptionCollector:
    """Takes the images and captions of one source and makes a `CaptionSet` of them.

    source: the name of the file that is read, for messages.
    on_problem: "refuse" or "skip"; see `Problems`.
    check_files: whether an image must lie at its path.

    Raises `UserError` when `on_problem` is something else.
    """

    def __init__(self, source: str, on_problem: OnProblem, check_files: bool) -> None:
        self.problems = Problems(source, on_problem)
        self._check_files = check_files
        self._images: dict[str, _Image] = {}
        self._paths: dict[Path, str] = {}
        self._caption_keys: set[Hashable] = set()
        self._splits: dict[str, str | None] = {}

    def has_image(self, image_id: str) -> bool:
        """Whether an image of this name was added."""
        return image_id in self._images

    def add_image(self, image_id: str, path: Path, record: str, number: int | None = None) -> bool:
        """Add an image; says whether it is new. A second one of the name or file is a problem.

        record: which record of the source it is, for messages. number: COCO's, if it has one.
        """
        if image_id in self._images:
            first = self._images[image_id].record
            self.problems.add("duplicate image", record, f"{record} is the same as {first}")
            return False
        if path in self._paths:
            first = self._paths[path]
            self.problems.add("duplicate image", record, f"{record} has the file of {first}")
            return False
        self._images[image_id] = _Image(record, path, number)
        self._paths[path] = record
        return True

    def is_in_split(self, image_id: str, split: str | None, record: str) -> bool:
        """Whether `split` is the one in which the image was first seen; a second is a problem.

        To be asked of every image of the source, whichever split is wanted of it, for a photo in
        two splits is one that a model is both trained on and judged by.
        """
        first = self._splits.setdefault(image_id, split)
        if split == first:
            return True
        sentence = f"{record} is in split {split!r}, but was in {first!r} before"
        self.problems.add("image in two splits", record, sentence)
        return False

    def add_caption(
        self,
        image_id: str,
        text: str,
        record: str,
        key: Hashable = None,
        tokens: Sequence[str] | None = None,
    ) -> None:
        """Add a caption to an image that was added before.

        record: which record of the source it is, for messages.
        key: what must not occur twice among the captions of the source; None: anything may.
        tokens: the caption's words, if the source brings its own.
        """
        image = self._images.get(image_id)
        text = text.strip()
        if image is None:
            sentence = f"{record} is of image {image_id}, which is not there"
            self.problems.add("caption without an image", record, sentence)
        elif key is not None and key in self._caption_keys:
            self.problems.add("duplicate caption", record, f"{record} is given twice")
        elif not _has_words(text) or (tokens is not None and not any(map(_has_words, tokens))):
            self.problems.add("empty caption", record, f"{record} has no words")
        elif not all(map(_is_valid_unicode, (text, *(tokens or ())))):
            self.problems.add(
                "caption that is not valid Unicode", record, f"{record} has half a character"
            )
        else:
            image.captions.append(text)
            image.tokens.append(None if tokens is None else tuple(tokens))
        self._caption_keys.add(key)

    def finish(self) -> CaptionSet:
        """What was collected.

        Raises `UserError` when a problem was met and the source is to be refused for it, or when
        no image is left.
        """
        images = []
        for image_id, image in self._images.items():
            if self._check_files and not os.path.isfile(image.path):
                self.problems.add(
                    "missing image", image.record, f"{image.record} has no file {image.path}"
                )
            elif not image.captions:
                self.problems.add(
                    "image without captions", image.record, f"{image.record} has no captions"
                )
            else:
                images.append(_captioned(image_id, image))
        self.problems.settle()
        if not images:
            raise UserError(f"no image with a caption is left of {self.problems.summary()}")
        return CaptionSet(images, self.problems)


def image_folder(images: Path, *names: str | None) -> Path:
    """The first sub-folder of `images` that has one of these names; without one, `images`."""
    for name in names:
        if name and os.path.isdir(images / name):
            return images / name
    return images


def require_folder(images: Path) -> None:
    """Raise `UserError` when the folder of the images is not there."""
    if not os.path.isdir(images):
        raise UserError(f"image folder {images} does not exist")


def _captioned(image_id: str, image: _Image) -> CaptionedImage:
    tokens = tuple(words for words in image.tokens if words is not None)
    complete = len(tokens) == len(image.captions)
    return CaptionedImage(
        image_id,
        image.path,
        tuple(image.captions),
        tokens if complete else None,
        image.number,
    )


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)


def _is_valid_unicode(text: str) -> bool:
    # A JSON file may hold one half of a surrogate pair, which no file can be written with.
    return not any("\ud800" <= character <= "\udfff" for character in text)
