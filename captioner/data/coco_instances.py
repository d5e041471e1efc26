"""COCO instances: which things are in a photo, and where.

Lin et al. 2014, *Microsoft COCO: Common Objects in Context*; the files are
`annotations/instances_{train,val}{2014,2017}.json`.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.data.boxes import Box, area
from captioner.data.grounding import Grounding, Target
from captioner.data.record_fields import checked, optional, records, required
from captioner.data.records import ImageId
from captioner.data.run_lengths import decode_run_lengths
from captioner.data.synonyms import Synonyms
from captioner.errors import UserError
from captioner.files import read_json

Record = dict[str, Any]


class CocoInstances:
    """The annotated things of the photos of one or more instance files.

    Made by `read_instances`. An image is called by its number, by that number as text, or by the
    name of its file, with or without folders before it. Masks are made only when asked for.
    """

    def __init__(self, document: dict[str, list[Record]], where: str) -> None:
        self._where = where
        self._index = _index(document)
        self._names = {record["id"]: record["name"] for record in document["categories"]}
        self._numbers: dict[str, int] = {}
        for image in document["images"]:
            self._numbers[str(image["id"])] = image["id"]
            if "file_name" in image:
                self._numbers[image["file_name"]] = image["id"]
        self.all_categories: tuple[str, ...] = tuple(dict.fromkeys(self._names.values()))
        """The names of the categories, in the order of the file."""

    def __contains__(self, image_id: ImageId) -> bool:
        return self._number(image_id) is not None

    def __str__(self) -> str:
        return self._where

    def categories(self, image_id: ImageId) -> frozenset[str]:
        """The names of the categories of which there is something in an image.

        Raises `UserError`, naming the image, for one that is not in the files.
        """
        return frozenset(self._names[record["category_id"]] for record in self._things(image_id))

    def target(self, image_id: ImageId, category: str) -> Target | None:
        """All things of a category in an image, crowds among them, as one mask.

        None where there are none. A thing whose outline is not given, or has no pixel in it,
        counts with its box.

        Raises `UserError`, naming the image, for one that is not in the files, and, naming the
        annotation, for an outline that cannot be drawn.
        """
        of_category = [
            record
            for record in self._things(image_id)
            if self._names[record["category_id"]] == category
        ]
        image = self._index.imgs[self._number(image_id)]
        width, height = image["width"], image["height"]
        union = np.zeros((height, width), dtype=np.bool_)
        boxes: list[Box] = []
        for record in of_category:
            mask = self._mask(record, width, height)
            if mask.any():
                union |= mask
            elif "bbox" in record and area(_edges(record["bbox"])) > 0:
                boxes.append(_edges(record["bbox"]))
        if not union.any() and not boxes:
            return None
        return Target((width, height), tuple(boxes), union if union.any() else None)

    def known_categories(self, synonyms: Synonyms) -> frozenset[str]:
        """The categories that the files and a word list both have.

        Raises `UserError` when there is none.
        """
        known = frozenset(synonyms.categories) & frozenset(self.all_categories)
        if not known:
            raise UserError(f"the word list has none of the categories of {self._where}")
        return known

    def grounding(self, synonyms: Synonyms) -> Grounding:
        """Finds the things that words of captions name.

        A word of a mention of a category has everything of that category in the photo as its
        target. An image that is not in the files has none.

        Raises `UserError` when the word list has none of the categories.
        """
        self.known_categories(synonyms)
        return _InstanceGrounding(self, synonyms)

    def _number(self, image_id: ImageId) -> int | None:
        name = str(image_id)
        return self._numbers.get(name, self._numbers.get(Path(name).name))

    def _things(self, image_id: ImageId) -> list[Record]:
        number = self._number(image_id)
        if number is None:
            raise UserError(f"image {image_id!r} is not in {self._where}")
        found: list[Record] = self._index.imgToAnns.get(number, [])
        return found

    def _mask(self, record: Record, width: int, height: int) -> NDArray[np.bool_]:
        """The pixels (height, width) of one thing."""
        segmentation = record.get("segmentation") or []
        where = f"the segmentation of annotation {record['id']} in {self._where}"
        if not segmentation:
            return np.zeros((height, width), dtype=np.bool_)
        if isinstance(segmentation, list):
            for polygon in segmentation:
                _check_polygon(polygon, width, height, where)
            drawn = self._index.annToRLE(record)
            segmentation = {"size": drawn["size"], "counts": drawn["counts"].decode("ascii")}
        size = segmentation.get("size")
        if size != [height, width]:
            raise UserError(f"{where} is of size {size}, not {[height, width]} as its image")
        return decode_run_lengths(segmentation.get("counts"), height, width, where)


class _InstanceGrounding:
    def __init__(self, instances: CocoInstances, synonyms: Synonyms) -> None:
        self._instances = instances
        self._synonyms = synonyms

    def __contains__(self, image_id: ImageId) -> bool:
        return image_id in self._instances

    def __str__(self) -> str:
        return str(self._instances)

    def targets(self, image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
        """As `Grounding` has it."""
        found: list[Target | None] = [None] * len(words)
        if image_id not in self._instances:
            return found
        of_category: dict[str, Target | None] = {}
        for mention in self._synonyms.mentions(words):
            category = mention.category
            if category not in of_category:
                of_category[category] = self._instances.target(image_id, category)
            for place in range(mention.first, mention.last):
                found[place] = of_category[category]
        return found


def read_instances(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> CocoInstances:
    """Read instance files.

    path: one file or several: the numbers of COCO's images hold across its files, and what other
        splits call validation may lie in more than one of them. Files share their categories.

    Raises `UserError` for an absent or ill-formed file, categories that differ from one file to
    the next, an image that comes twice, and an annotation of an image or a category that is not
    there.
    """
    paths = [Path(path)] if isinstance(path, (str, os.PathLike)) else [Path(each) for each in path]
    if not paths:
        raise UserError("there is no instance file to read")
    merged: dict[str, list[Record]] = {"images": [], "annotations": [], "categories": []}
    image_files: dict[int, Path] = {}
    for file in paths:
        document = _well_formed(read_json(file, "instance file"), f"instance file {file}")
        for image in document["images"]:
            if image["id"] in image_files:
                first = image_files[image["id"]]
                also = "twice" if first == file else f"in both {first} and"
                raise UserError(f"image {image['id']} is {also} in instance file {file}")
            image_files[image["id"]] = file
        if merged["categories"] and _by_number(merged) != _by_number(document):
            raise UserError(f"instance files {paths[0]} and {file} have different categories")
        merged["categories"] = document["categories"]
        merged["images"] += document["images"]
        merged["annotations"] += document["annotations"]
    return CocoInstances(merged, " and ".join(f"instance file {file}" for file in paths))


def _by_number(document: dict[str, list[Record]]) -> dict[int, str]:
    return {record["id"]: record["name"] for record in document["categories"]}


def _well_formed(document: Any, where: str) -> dict[str, list[Record]]:
    # pycocotools indexes whatever it is given and fails with a bare KeyError, so look first.
    categories = records(document, "categories", where)
    for number, category in enumerate(categories):
        required(category, "id", int, f"category record {number} in {where}")
        required(category, "name", str, f"category record {number} in {where}")
    images = records(document, "images", where)
    for number, image in enumerate(images):
        record = f"image record {number} in {where}"
        required(image, "id", int, record)
        optional(image, "file_name", str, record)
        for side in ("width", "height"):
            if not 1 <= required(image, side, int, record) <= _LONGEST_SIDE:
                raise UserError(f'field "{side}" of {record} is not from 1 to {_LONGEST_SIDE}')
    known_images = {image["id"] for image in images}
    known_categories = {category["id"] for category in categories}
    annotations = records(document, "annotations", where)
    for number, annotation in enumerate(annotations):
        record = f"annotation record {number} in {where}"
        required(annotation, "id", int, record)
        if required(annotation, "image_id", int, record) not in known_images:
            raise UserError(f"{record} is of image {annotation['image_id']}, which is not there")
        if required(annotation, "category_id", int, record) not in known_categories:
            raise UserError(
                f"{record} is of category {annotation['category_id']}, which is not there"
            )
        _check_place(annotation, record)
    return {"images": images, "annotations": annotations, "categories": categories}


_LONGEST_SIDE = 20_000  # pixels: masks are as large as the photo


def _check_place(annotation: Record, where: str) -> None:
    """Refuse an annotation that does not say where its thing is; outlines are read later."""
    box = optional(annotation, "bbox", list, where)
    if box is not None and (len(box) != 4 or not all(map(_is_number, box))):
        raise UserError(f'field "bbox" of {where} is not four numbers')
    segmentation = annotation.get("segmentation")
    if segmentation is not None and not isinstance(segmentation, (list, dict)):
        raise UserError(f'field "segmentation" of {where} is neither a list nor an object')
    if not segmentation and box is None:
        raise UserError(f"{where} has neither a segmentation nor a bbox")


def _check_polygon(polygon: Any, width: int, height: int, where: str) -> None:
    """Refuse what pycocotools would misread or, for points far outside the photo, die of."""
    corners = checked(polygon, list, f"a polygon of {where}")
    if len(corners) < 6 or len(corners) % 2 or not all(map(_is_number, corners)):
        raise UserError(f"a polygon of {where} is not three or more pairs of numbers")
    for side, values in ((width, corners[::2]), (height, corners[1::2])):
        if min(values) < -side or max(values) > 2 * side:
            raise UserError(f"a polygon of {where} has a point far outside its image")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < 1e9  # nor is it infinite, or not a number


def _edges(box: Sequence[float]) -> Box:
    left, top, width, height = box
    return (left, top, left + width, top + height)


def _index(document: dict[str, list[Record]]) -> Any:
    # Imported here: no other part of the package needs pycocotools.
    from pycocotools.coco import COCO

    index = COCO()
    index.dataset = document
    with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does
        index.createIndex()
    return index
