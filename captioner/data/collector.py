"""Joins images with their captions and applies the rules common to every source."""

from __future__ import annotations

import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from captioner.data.records import CaptionedImage, CaptionSet, ImageId
from captioner.data.source_problems import OnProblem, Problems, or_other_format
from captioner.errors import UserError
from captioner.files import read_json
from captioner.schema import Instance, from_mapping
from captioner.text.plain_text import is_valid_unicode


@dataclass
class _Image:
    record: str
    path: Path
    captions: list[str] = field(default_factory=list)
    tokens: list[tuple[str, ...] | None] = field(default_factory=list)


class CaptionCollector:
    """Collects the images and captions of one source into a `CaptionSet`.

    source: the file's name, for messages. on_problem: see `Problems`.
    check_files: whether the photos must exist.
    """

    def __init__(self, source: str, on_problem: OnProblem, check_files: bool) -> None:
        self.problems = Problems(source, on_problem)
        self._check_files = check_files
        self._images: dict[ImageId, _Image] = {}
        self._paths: dict[Path, str] = {}
        self._caption_keys: set[Hashable] = set()
        self._splits: dict[ImageId, str | None] = {}

    def has_image(self, image_id: ImageId) -> bool:
        """Whether the image was added."""
        return image_id in self._images

    def add_image(self, image_id: ImageId, path: Path, record: str) -> bool:
        """Add an image; False, and a problem, if its name or file was added before.

        record: the record's name, for messages.
        """
        if image_id in self._images:
            first = self._images[image_id].record
            self.problems.add("duplicate image", f"{record} is the same as {first}")
            return False
        if path in self._paths:
            first = self._paths[path]
            self.problems.add("duplicate image", f"{record} has the file of {first}")
            return False
        self._images[image_id] = _Image(record, path)
        self._paths[path] = record
        return True

    def is_in_split(self, image_id: ImageId, split: str | None, record: str) -> bool:
        """Whether `split` is the first split of this image; a second one is a problem.

        Call it for every image of the source: a model must not be validated on its training data.
        """
        first = self._splits.setdefault(image_id, split)
        if split == first:
            return True
        sentence = f"{record} is in split {split!r}, but was in {first!r} before"
        self.problems.add("image in two splits", sentence)
        return False

    def add_caption(
        self,
        image_id: ImageId,
        text: str,
        record: str,
        key: Hashable = None,
        tokens: Sequence[str] | None = None,
    ) -> None:
        """Add a caption to an image.

        record: the record's name, for messages. key: unique among the source's captions; None: not
        checked. tokens: the source's own words of the caption.
        """
        image = self._images.get(image_id)
        text = text.strip()
        if image is None:
            sentence = f"{record} is of image {image_id}, which is not there"
            self.problems.add("caption without an image", sentence)
        elif key is not None and key in self._caption_keys:
            self.problems.add("duplicate caption", f"{record} is given twice")
        elif not _has_words(text) or (tokens is not None and not any(map(_has_words, tokens))):
            self.problems.add("empty caption", f"{record} has no words")
        elif not all(map(is_valid_unicode, (text, *(tokens or ())))):
            sentence = f"{record} has half a character"
            self.problems.add("caption of invalid Unicode", sentence)
        else:
            image.captions.append(text)
            image.tokens.append(None if tokens is None else tuple(tokens))
        self._caption_keys.add(key)

    def finish(self) -> CaptionSet:
        """The collected set; raises `UserError` for a refused problem or if no image is left."""
        paths = [image.path for image in self._images.values()]
        if self._check_files and len(paths) > 1 and not any(map(os.path.isfile, paths)):
            raise UserError(
                f"{self.problems.source}: none of its {len(paths):,} photos exists, the first "
                f"would be {paths[0]}; give their folder (--images, in training data.images)"
            )
        images = []
        for image_id, image in self._images.items():
            if self._check_files and not os.path.isfile(image.path):
                self.problems.add("missing image", f"{image.record} has no file {image.path}")
            elif not image.captions:
                self.problems.add("image without captions", f"{image.record} has no captions")
            else:
                tokens = tuple(words for words in image.tokens if words is not None)
                complete = tokens if len(tokens) == len(image.captions) else None
                images.append(CaptionedImage(image_id, image.path, tuple(image.captions), complete))
        self.problems.settle()
        if not images:
            raise UserError(f"no image with a caption is left of {self.problems.summary()}")
        return CaptionSet(images, self.problems)


def read_document(
    kind: type[Instance], path: str | os.PathLike[str], what: str, format: str
) -> Instance:
    """Read a JSON file of a format. what: the file's role, for messages. Raises `UserError`."""
    try:
        return from_mapping(kind, read_json(path, what), f"{what} {path}")
    except UserError as error:
        advice = or_other_format(format) if os.path.isfile(path) else ""
        raise UserError(f"{error}{advice}") from None


def image_folder(images: Path, *names: str | None) -> Path:
    """The first existing sub-folder of `images` with one of these names, else `images`."""
    for name in names:
        if name and os.path.isdir(images / name):
            return images / name
    return images


def _has_words(text: str) -> bool:
    return any(character.isalnum() for character in text)
