"""COCO instances: the objects in a photo, with boxes and masks.

Lin et al. 2014, *Microsoft COCO: Common Objects in Context*; the files are
`annotations/instances_{train,val}{2014,2017}.json`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from captioner.data.boxes import Box, area
from captioner.data.coco import coco_index
from captioner.data.grounding import Grounding, Target
from captioner.data.record_fields import checked, optional, records, required
from captioner.data.records import ImageId
from captioner.data.run_lengths import decode_run_lengths
from captioner.data.synonyms import Synonyms
from captioner.errors import UserError
from captioner.files import read_json

Record = dict[str, Any]


class CocoInstances:
    """The annotated objects of one or more instance files; see `read_instances`.

    An image is named by its number, that number as text, or its file name, with or without
    folders. Masks are decoded on demand.
    """

    def __init__(self, document: dict[str, list[Record]], where: str) -> None:
        self._where = where
        self._index = coco_index(document)
        self._names = {record["id"]: record["name"] for record in document["categories"]}
        self._numbers: dict[str, int] = {}
        for image in document["images"]:
            self._numbers[str(image["id"])] = image["id"]
            if "file_name" in image:
                self._numbers[image["file_name"]] = image["id"]
        self.all_categories: tuple[str, ...] = tuple(dict.fromkeys(self._names.values()))
        """Category names, in file order."""

    def __contains__(self, image_id: ImageId) -> bool:
        return self._number(image_id) is not None

    def __str__(self) -> str:
        return self._where

    def categories(self, image_id: ImageId) -> frozenset[str]:
        """The names of the categories in an image.

        Raises `UserError` for an image that is not in the files.
        """
        return frozenset(self._names[record["category_id"]] for record in self._objects(image_id))

    def target(self, image_id: ImageId, category: str) -> Target | None:
        """All objects of a category in an image, crowds included; None if there are none.

        An object without an outline, or with an empty one, counts with its box.

        Raises `UserError` for an image that is not in the files, and for an invalid outline.
        """
        of_category = [
            record
            for record in self._objects(image_id)
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
        """The categories in both the files and a word list; raises `UserError` if none is."""
        known = frozenset(synonyms.categories) & frozenset(self.all_categories)
        if not known:
            raise UserError(f"the word list has none of the categories of {self._where}")
        return known

    def grounding(self, synonyms: Synonyms) -> Grounding:
        """A grounding whose target of a word is every object of the category that it names.

        Raises `UserError` if the word list has none of the categories.
        """
        self.known_categories(synonyms)
        return _InstanceGrounding(self, synonyms)

    def _number(self, image_id: ImageId) -> int | None:
        name = str(image_id)
        return self._numbers.get(name, self._numbers.get(Path(name).name))

    def _objects(self, image_id: ImageId) -> list[Record]:
        number = self._number(image_id)
        if number is None:
            raise UserError(f"image {image_id!r} is not in {self._where}")
        objects: list[Record] = self._index.imgToAnns.get(number, [])
        return objects

    def _mask(self, record: Record, width: int, height: int) -> NDArray[np.bool_]:
        """The mask (height, width) of one object."""
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
        """See `Grounding`."""
        targets: list[Target | None] = [None] * len(words)
        if image_id not in self._instances:
            return targets
        of_category: dict[str, Target | None] = {}
        for mention in self._synonyms.mentions(words):
            category = mention.category
            if category not in of_category:
                of_category[category] = self._instances.target(image_id, category)
            for place in range(mention.first, mention.last):
                targets[place] = of_category[category]
        return targets


def read_instances(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> CocoInstances:
    """Read one or several instance files with the same categories.

    Raises `UserError` for a missing or ill-formed file, differing categories, a duplicate image,
    and an annotation of an unknown image or category.
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
    # pycocotools raises a bare KeyError for a missing field.
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


_LONGEST_SIDE = 20_000  # pixels; masks are as large as the photo


def _check_place(annotation: Record, where: str) -> None:
    """Refuse an annotation without a valid box or an outline; outlines are decoded later."""
    box = optional(annotation, "bbox", list, where)
    if box is not None and (len(box) != 4 or not all(map(_is_number, box))):
        raise UserError(f'field "bbox" of {where} is not four numbers')
    segmentation = annotation.get("segmentation")
    if segmentation is not None and not isinstance(segmentation, (list, dict)):
        raise UserError(f'field "segmentation" of {where} is neither a list nor an object')
    if not segmentation and box is None:
        raise UserError(f"{where} has neither a segmentation nor a bbox")


def _check_polygon(polygon: Any, width: int, height: int, where: str) -> None:
    """Refuse a polygon that pycocotools would misread, or crash on: points far outside."""
    corners = checked(polygon, list, f"a polygon of {where}")
    if len(corners) < 6 or len(corners) % 2 or not all(map(_is_number, corners)):
        raise UserError(f"a polygon of {where} is not three or more pairs of numbers")
    for side, values in ((width, corners[::2]), (height, corners[1::2])):
        if min(values) < -side or max(values) > 2 * side:
            raise UserError(f"a polygon of {where} has a point far outside its image")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < 1e9  # False for infinity and NaN


def _edges(box: Sequence[float]) -> Box:
    left, top, width, height = box
    return (left, top, left + width, top + height)
