"""Flickr30k Entities: phrases of captions with their boxes.

Plummer et al. 2015, *Flickr30k Entities: Collecting Region-to-Phrase Correspondences for Richer
Image-to-Sentence Models*; the folder has `Annotations/ID.xml` with the boxes and `Sentences/ID.txt`
with the captions of the photo `ID.jpg`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from captioner.data.grounding import Box, Target
from captioner.data.records import ImageId
from captioner.errors import UserError
from captioner.files import read_text
from captioner.text.function_words import FUNCTION_WORDS
from captioner.text.tokenizer import tokenize

_PHRASE = re.compile(r"\[/EN#(\d+)((?:/[^\s/\[\]]+)*)\s+([^\[\]]+)\]")

_NUMBERS = "one two three four five six seven eight nine ten several many few various"
_WITHOUT_BOX = FUNCTION_WORDS | set(_NUMBERS.split())


Phrase = tuple[str, list[str]]
"""An entity and the words that name it."""


@dataclass(frozen=True)
class _Photo:
    phrases: list[Phrase]
    size: tuple[int, int]
    boxes: dict[str, list[Box]]  # by entity, those with a box


class Entities:
    """The annotated photos of a folder of Flickr30k Entities; a `Grounding`.

    An image is named by its file name, with or without `.jpg` and folders. Files are read and
    checked on first use.

    Raises `UserError` if the folder `Annotations` or `Sentences` is missing.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        for name in ("Annotations", "Sentences"):
            if not (Path(folder) / name).is_dir():
                raise UserError(f"Flickr30k Entities {folder} has no folder {name}")
        self._folder = Path(folder)
        self._photos: dict[str, _Photo] = {}

    def __contains__(self, image_id: ImageId) -> bool:
        """Whether one of an image's two files exists."""
        return any(map(os.path.lexists, self._files(_name(image_id))))

    def __str__(self) -> str:
        return f"Flickr30k Entities {self._folder}"

    def targets(self, image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
        """The targets of the words of any caption of a photo.

        A word gets the boxes of the entities whose annotated phrases contain it, after Liu et al.
        2017, *Attention Correctness in Neural Image Captioning*, section 3.2. The last words of
        phrases ("shirt" of "a red shirt") go before their other words ("red"). Function words,
        numbers and images that are not in the folder get None.

        Raises `UserError` for ill-formed files.
        """
        if image_id not in self:
            return [None] * len(words)
        photo = self._photo(_name(image_id))
        heads: dict[str, set[str]] = {}
        others: dict[str, set[str]] = {}
        for entity, named in photo.phrases:
            content = [word for word in named if word not in _WITHOUT_BOX]
            if entity in photo.boxes:
                for word in content:
                    others.setdefault(word, set()).add(entity)
                for word in content[-1:]:
                    heads.setdefault(word, set()).add(entity)
        return [_union(photo, heads.get(word) or others.get(word) or set()) for word in words]

    def _photo(self, name: str) -> _Photo:
        if name not in self._photos:
            boxes, sentences = self._files(name)
            self._photos[name] = _Photo(_read_phrases(sentences), *_read_boxes(boxes))
        return self._photos[name]

    def _files(self, name: str) -> tuple[Path, Path]:
        """The paths of a photo's boxes and sentences."""
        return (
            self._folder / "Annotations" / f"{name}.xml",
            self._folder / "Sentences" / f"{name}.txt",
        )


def _name(image_id: ImageId) -> str:
    """The stem of an image's files."""
    return re.sub(r"\.jpe?g$", "", Path(str(image_id)).name, flags=re.IGNORECASE)


def _read_phrases(file: Path) -> list[Phrase]:
    """The phrases of lines such as `[/EN#1/people A man] in [/EN#2/clothing a hat]`."""
    phrases: list[Phrase] = []
    for number, line in enumerate(read_text(file, "sentence file").splitlines(), start=1):
        if "[/" in _PHRASE.sub(" ", line):
            raise UserError(
                f"line {number} of sentence file {file} has a phrase that is not of the form "
                "[/EN#1/people A man]"
            )
        phrases += [(match[1], tokenize(match[3])) for match in _PHRASE.finditer(line)]
    return phrases


def _read_boxes(file: Path) -> tuple[tuple[int, int], dict[str, list[Box]]]:
    """The size of a picture, and the boxes of each entity that has any."""
    where = f"annotation file {file}"
    text = read_text(file, "annotation file")
    if "<!DOCTYPE" in text:  # It may declare entities that expand to gigabytes.
        raise UserError(f"{where} has a document type declaration, which is not read")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError) as error:
        raise UserError(f"{where} is not valid XML ({error})") from None
    size = (int(_number(root, "size/width", where)), int(_number(root, "size/height", where)))
    boxes: dict[str, list[Box]] = {}
    for number, thing in enumerate(root.findall("object")):
        record = f"object {number} of {where}"
        names = [(name.text or "").strip() for name in thing.findall("name")]
        if not names or not all(names):
            raise UserError(f"{record} has no name")
        for box in thing.findall("bndbox"):
            edges = _edges(box, size, record)
            for name in names:
                boxes.setdefault(name, []).append(edges)
    return size, boxes


def _edges(box: ElementTree.Element, size: tuple[int, int], where: str) -> Box:
    """The edges of a box written as its first and last pixel, counted from 1."""
    left, top, right, bottom = (
        _number(box, name, where) for name in ("xmin", "ymin", "xmax", "ymax")
    )
    edges = (max(left - 1, 0.0), max(top - 1, 0.0), min(right, size[0]), min(bottom, size[1]))
    if edges[0] >= edges[2] or edges[1] >= edges[3]:
        raise UserError(f"{where} has a box without a pixel in its picture")
    return edges


def _number(element: ElementTree.Element, name: str, where: str) -> float:
    try:
        value = float(element.findtext(name, ""))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{where} has no number {name}")
    return value


def _union(photo: _Photo, entities: set[str]) -> Target | None:
    """The boxes of all the entities."""
    boxes = dict.fromkeys(box for entity in sorted(entities) for box in photo.boxes[entity])
    return Target(photo.size, tuple(boxes)) if boxes else None
