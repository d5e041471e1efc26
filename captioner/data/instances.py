"""The parts of a photo that words name, and COCO's instances, which say where they are.

Lin et al. 2014, *Microsoft COCO: Common Objects in Context*; the files are
`annotations/instances_{train,val}{2014,2017}.json`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field, with_config
from typing_extensions import NotRequired, TypedDict

from captioner.data.example import ImageId, id_matcher
from captioner.data.synonyms import Synonyms
from captioner.errors import UserError
from captioner.files import read_json
from captioner.schema import RECORD, Id, Records, Text, from_mapping

Box = tuple[float, float, float, float]
"""(left, top, right, bottom) edges in pixels: the first pixel alone is (0, 0, 1, 1)."""


@dataclass(frozen=True)
class Target:
    """The part of a picture that a word names: the union of its boxes and its mask, one or both.

    size: width and height in pixels of the annotated picture; the model may see a resized one.
    boxes: edges in pixels of that picture. mask: (height, width), True inside.
    """

    size: tuple[int, int]
    boxes: tuple[Box, ...] = ()
    mask: NDArray[np.bool_] | None = None


class Grounding(Protocol):
    """Finds the targets of the words of captions; `str` names its source."""

    def __contains__(self, image_id: ImageId) -> bool:
        """Whether the photo is annotated, even with nothing in it."""

    def targets(self, image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
        """The target of each of T words; None if the word names nothing annotated."""


_Side = Annotated[int, Field(ge=1, le=20_000)]
"""Pixels; masks are as large as the photo."""

_Number = Annotated[float, Field(gt=-1e9, lt=1e9)]
_Box = Annotated[tuple[_Number, _Number, _Number, _Number], Field(strict=False)]


@with_config(RECORD)
class _Category(TypedDict):
    id: Id
    name: Text


@with_config(RECORD)
class _Image(TypedDict):
    id: Id
    width: _Side
    height: _Side
    file_name: NotRequired[Text]


@with_config(RECORD)
class _Thing(TypedDict):
    id: Id
    image_id: Id
    category_id: Id
    bbox: NotRequired[_Box]
    segmentation: NotRequired[Any]  # Polygons or run lengths, checked when they are drawn.


class _InstanceFile(Records):
    categories: Annotated[list[_Category], FailFast()]
    images: Annotated[list[_Image], FailFast()]
    annotations: Annotated[list[_Thing], FailFast()]


class CocoInstances:
    """The annotated objects of one or more instance files.

    An image is named by its id, that id as text, or its file name, with or without folders.
    Masks are decoded on demand.
    """

    def __init__(self) -> None:
        self._files: list[str] = []
        self._names: dict[ImageId, str] = {}  # of categories
        self._images: dict[ImageId, _Image] = {}
        self._objects_of: dict[ImageId, list[_Thing]] = {}
        self._numbers: dict[str, ImageId] = {}  # of images, by id as text or file name

    def add_file(self, path: str | os.PathLike[str]) -> None:
        """Read an instance file, with the same categories as those before."""
        where = f"instance file {path}"
        file = from_mapping(_InstanceFile, read_json(path, "instance file"), where)
        names = {category["id"]: category["name"] for category in file.categories}
        if self._names and self._names != names:
            raise UserError(f"{self} and {where} have different categories")
        self._names = names
        self._files.append(where)
        for image in file.images:
            number = image["id"]
            self._images[number] = image
            self._objects_of.setdefault(number, [])
            self._numbers[str(number)] = number
            self._numbers[image.get("file_name", str(number))] = number
        things = file.annotations
        image_of = id_matcher(list(self._images), [each["image_id"] for each in things])
        category_of = id_matcher(list(names), [each["category_id"] for each in things])
        for place, thing in enumerate(things):
            record = f"annotations[{place}] of {where}"
            thing["image_id"] = image_of(thing["image_id"])
            thing["category_id"] = category_of(thing["category_id"])
            if thing["image_id"] not in self._objects_of:
                raise UserError(f"{record} is of image {thing['image_id']}, which is not there")
            if thing["category_id"] not in names:
                category = thing["category_id"]
                raise UserError(f"{record} is of category {category}, which is not there")
            self._objects_of[thing["image_id"]].append(thing)

    def __contains__(self, image_id: ImageId) -> bool:
        return self._number(image_id) is not None

    def __str__(self) -> str:
        return " and ".join(self._files)

    def categories(self, image_id: ImageId) -> frozenset[str]:
        """The names of the categories in an image."""
        objects = self._objects_of[self._require(image_id)]
        return frozenset(self._names[thing["category_id"]] for thing in objects)

    def target(self, image_id: ImageId, category: str) -> Target | None:
        """All objects of a category in an image, crowds included; None if there are none.

        An object without an outline, or with an empty one, counts with its box.
        """
        number = self._require(image_id)
        width, height = self._images[number]["width"], self._images[number]["height"]
        union = np.zeros((height, width), dtype=np.bool_)
        boxes: list[Box] = []
        for thing in self._objects_of[number]:
            if self._names[thing["category_id"]] != category:
                continue
            mask = self._mask(thing, width, height)
            if mask.any():
                union |= mask
                continue
            left, top, across, down = thing.get("bbox", (0, 0, 0, 0))
            if across > 0 and down > 0:
                boxes.append((left, top, left + across, top + down))
        if not union.any() and not boxes:
            return None
        return Target((width, height), tuple(boxes), union if union.any() else None)

    def known_categories(self, synonyms: Synonyms) -> frozenset[str]:
        """The categories in both the files and a word list; raises `UserError` if none is."""
        known = frozenset(synonyms.categories) & frozenset(self._names.values())
        if not known:
            raise UserError(f"the word list has none of the categories of {self}")
        return known

    def grounding(self, synonyms: Synonyms) -> Grounding:
        """A grounding whose target of a word is every object of the category that it names."""
        self.known_categories(synonyms)
        return _InstanceGrounding(self, synonyms)

    def _number(self, image_id: ImageId) -> ImageId | None:
        name = str(image_id)
        return self._numbers.get(name, self._numbers.get(Path(name).name))

    def _require(self, image_id: ImageId) -> ImageId:
        number = self._number(image_id)
        if number is None:
            raise UserError(f"image {image_id!r} is not in {self}")
        return number

    def _mask(self, thing: _Thing, width: int, height: int) -> NDArray[np.bool_]:
        """The mask (height, width) of one object."""
        segmentation = thing.get("segmentation") or []
        where = f"the segmentation of annotation {thing['id']} in {self}"
        if not segmentation:
            return np.zeros((height, width), dtype=np.bool_)
        if isinstance(segmentation, list):
            for polygon in segmentation:
                _check_polygon(polygon, width, height, where)
            # Imported here: few commands read masks.
            from pycocotools import mask

            drawn = mask.merge(mask.frPyObjects(segmentation, height, width))
            return np.asarray(mask.decode(drawn), dtype=np.bool_)
        if not isinstance(segmentation, dict):
            raise UserError(f"{where} is neither a list nor an object")
        size = segmentation.get("size")
        if size != [height, width]:
            raise UserError(f"{where} is of size {size}, not {[height, width]} as its image")
        return decode_run_lengths(segmentation.get("counts"), height, width, where)


@dataclass
class _InstanceGrounding:
    instances: CocoInstances
    synonyms: Synonyms

    def __contains__(self, image_id: ImageId) -> bool:
        return image_id in self.instances

    def __str__(self) -> str:
        return str(self.instances)

    def targets(self, image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
        """See `Grounding`."""
        targets: list[Target | None] = [None] * len(words)
        if image_id in self.instances:
            target_of = cache(partial(self.instances.target, image_id))
            for first, last, category in self.synonyms.mentions(words):
                targets[first:last] = [target_of(category)] * (last - first)
        return targets


def read_instances(paths: Sequence[str | os.PathLike[str]]) -> CocoInstances:
    """Read one or several instance files with the same categories."""
    instances = CocoInstances()
    for path in paths:
        instances.add_file(path)
    return instances


def _check_polygon(polygon: Any, width: int, height: int, where: str) -> None:
    """Refuse a polygon that pycocotools would misread, or crash on: points far outside."""
    corners = polygon if isinstance(polygon, list) else []
    are_near = all(
        type(value) in (int, float) and -side <= value <= 2 * side
        for value, side in zip(corners, cycle((width, height)), strict=False)
    )
    if len(corners) < 6 or len(corners) % 2 or not are_near:
        raise UserError(f"a polygon of {where} is not three or more pairs of numbers in its image")


def decode_run_lengths(counts: Any, height: int, width: int, where: str) -> NDArray[np.bool_]:
    """Decode COCO's run lengths, a list or a string, to a mask (height, width).

    Runs go down the columns, outside and inside by turns. pycocotools does not check that they add
    up to the mask's size.
    """
    try:
        runs = _unpack(counts) if isinstance(counts, str) else list(counts)
        if sum(runs) != height * width:
            raise ValueError
        return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(width, height).T
    except (TypeError, ValueError, OverflowError):
        raise UserError(
            f"{where} has no runs that add up to the {height * width} pixels of its image"
        ) from None


def _unpack(text: str) -> list[int]:
    """The numbers in COCO's string: 5 bits a letter, low ones first, 32 where more follow.

    From the fourth number on they are differences from the last but one.
    """
    runs: list[int] = []
    value = shift = 0
    for byte in text.encode():
        digit = byte - ord("0")
        value |= (digit & 31) << shift
        shift += 5
        if not digit & 32:
            if digit & 16:
                value -= 1 << shift
            runs.append(value + (runs[-2] if len(runs) > 2 else 0))
            value = shift = 0
    return runs
