"""Objects that words name: "a surfer" is a "person"; COCO's instances locate them.

Lin et al. 2014, *Microsoft COCO: Common Objects in Context*; the files are
`annotations/instances_{train,val}{2014,2017}.json`.
"""

import os
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import FailFast, Field
from typing_extensions import NotRequired, TypedDict

from captioner.data.example import ImageId
from captioner.errors import UserError
from captioner.files import read_json, read_text
from captioner.schema import Id, Records, Text, from_mapping
from captioner.text.languages import word_forms
from captioner.text.tokenizer import tokenize

Phrase = tuple[str, ...]
Mention = tuple[int, int, str]  # First word, last word (excluded), category.
Box = tuple[float, float, float, float]
"""(left, top, right, bottom) edges in pixels: the first pixel alone is (0, 0, 1, 1)."""


@dataclass(frozen=True)
class Target:
    """The part of a picture that a word names: the union of its boxes and its mask."""

    size: tuple[int, int]  # Width and height of the annotated picture in pixels.
    boxes: tuple[Box, ...] = ()
    mask: NDArray[np.bool_] | None = None  # (height, width), True inside.


@dataclass(frozen=True)
class Grounding:
    """Finds the targets of a caption's words, None of a word that names nothing."""

    source: str
    images: Container[ImageId]  # The annotated ones.
    targets: Callable[[ImageId, Sequence[str]], list[Target | None]]  # One for each word.


class Synonyms:
    """A word list. phrases: the category that each names, or None."""

    def __init__(self, phrases: Mapping[Phrase, str | None]) -> None:
        self._phrases = dict(phrases)
        # Words of the longest phrase, by first word.
        self._longest = {phrase[0]: len(phrase) for phrase in sorted(phrases, key=len)}
        self.categories = tuple(filter(None, dict.fromkeys(phrases.values())))

    def mentions(self, words: Sequence[str]) -> list[Mention]:
        """The mentions of a tokenized caption, from left to right; the longest phrase wins."""
        mentions: list[Mention] = []
        last = 0
        for first, word in enumerate(words):
            longest = self._longest.get(word, 0) if first >= last else 0
            for length in range(longest, 0, -1):
                phrase = tuple(words[first : first + length])
                if phrase in self._phrases:
                    last = first + len(phrase)
                    if category := self._phrases[phrase]:
                        mentions.append((first, last, category))
                    break
        return mentions


def read_synonyms(path: str | os.PathLike[str] | None = None) -> Synonyms:
    """Read a word list; None: that of COCO's 80 categories.

    A line holds a category, a colon and comma-separated phrases: `dog: puppy, bull dog`. The
    category `-` marks phrases that name nothing: `-: dog house`. Plurals ("dogs", "women") and
    joined or hyphenated forms ("bulldog", "bull-dog") are derived, unless listed.
    """
    file = Path(__file__).with_name("coco_synonyms.txt") if path is None else Path(path)
    phrases: dict[Phrase, str | None] = {}
    categories: dict[Phrase, str] = {}
    for number, line in enumerate(read_text(file, "word list").splitlines(), start=1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        name, colon, rest = content.partition(":")
        category = None if name.strip() == "-" else " ".join(name.lower().split())
        if category is not None:
            categories.setdefault(tuple(tokenize(category)), category)
        listed = [tuple(tokenize(text)) for text in rest.split(",")] if rest.strip() else []
        if not colon or () in listed or () in categories:
            fault = "is not a category, a colon and phrases with commas between"
            raise UserError(f"word list {file}, line {number} {fault}")
        phrases |= dict.fromkeys(listed, category)
    if not categories:
        raise UserError(f"word list {file} has no category")
    known = {**categories, **phrases}
    derived = dict(known)
    for phrase, category in known.items():
        forms = {(*phrase[:-1], word) for word in word_forms(phrase[-1])}
        for form in {phrase} | (forms - known.keys()):
            for joined in (form, ("".join(form),), ("-".join(form),)):
                derived.setdefault(joined, category)
    return Synonyms(derived)


_Side = Annotated[int, Field(ge=1, le=20_000)]  # Pixels; masks are as large as the photo.


class _Category(TypedDict):
    id: Id
    name: Text


class _CocoImage(TypedDict):
    id: Id
    width: _Side
    height: _Side
    file_name: NotRequired[Text]


class _Thing(TypedDict):
    id: Id
    image_id: Id
    category_id: Id
    bbox: NotRequired[Annotated[Box, Field(strict=False)]]  # Width and height, not right, bottom.
    segmentation: NotRequired[object]  # Polygons or run lengths, checked when they are drawn.


class _InstanceFile(Records):
    categories: Annotated[list[_Category], FailFast()]
    images: Annotated[list[_CocoImage], FailFast()]
    annotations: Annotated[list[_Thing], FailFast()]


class _AnnotatedPhoto(NamedTuple):
    size: tuple[int, int]  # Width and height.
    things: list[tuple[str, _Thing]]  # Each with its category.


class CocoInstances:
    """The annotated objects of one or more instance files.

    An image is named by its id, that id as text, or its file name, with or without folders.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        self._name = " and ".join(f"instance file {path}" for path in paths)
        self._categories: dict[str, str] = {}
        self._photos: dict[str, _AnnotatedPhoto] = {}  # by id as text and by file name
        for path in paths:
            where = f"instance file {path}"
            file = from_mapping(_InstanceFile, read_json(path, "instance file"), where)
            categories = {str(category["id"]): category["name"] for category in file.categories}
            self._categories |= categories
            for image in file.images:
                name, size = str(image["id"]), (image["width"], image["height"])
                photo = self._photos.setdefault(name, _AnnotatedPhoto(size, []))
                self._photos[image.get("file_name", name).replace("\\", "/")] = photo
            for place, thing in enumerate(file.annotations):
                image_id, category_id = str(thing["image_id"]), str(thing["category_id"])
                if image_id not in self._photos or category_id not in categories:
                    both = f"image {image_id} and category {category_id}, which are not both there"
                    raise UserError(f"annotations[{place}] of {where} is of {both}")
                self._photos[image_id].things.append((categories[category_id], thing))

    def __contains__(self, image_id: object) -> bool:
        return self._find(image_id) is not None

    def __str__(self) -> str:
        return self._name

    def categories(self, image_id: ImageId) -> frozenset[str]:
        """The names of the categories in an image."""
        return frozenset(category for category, _ in self._require(image_id).things)

    def target(self, image_id: ImageId, category: str) -> Target | None:
        """All objects of a category in an image, crowds included; None if there are none.

        An object without an outline, or with an empty one, counts with its box.
        """
        (width, height), things = self._require(image_id)
        union = np.zeros((height, width), dtype=np.bool_)
        boxes: list[Box] = []
        for thing in (thing for name, thing in things if name == category):
            mask = self._mask(thing, width, height)
            left, top, across, down = thing.get("bbox", (0, 0, 0, 0))
            union |= mask
            if not mask.any() and across > 0 and down > 0:
                boxes.append((left, top, left + across, top + down))
        target = Target((width, height), tuple(boxes), union if union.any() else None)
        return target if boxes or target.mask is not None else None

    def known_categories(self, synonyms: Synonyms) -> frozenset[str]:
        """The categories in both the files and a word list, one at least."""
        if known := frozenset(synonyms.categories) & frozenset(self._categories.values()):
            return known
        raise UserError(f"the word list has none of the categories of {self}")

    def grounding(self, synonyms: Synonyms) -> Grounding:
        """A grounding whose target of a word is every object of the category that it names."""
        self.known_categories(synonyms)

        def targets(image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
            word_targets: list[Target | None] = [None] * len(words)
            for first, last, category in synonyms.mentions(words) if image_id in self else ():
                word_targets[first:last] = [self.target(image_id, category)] * (last - first)
            return word_targets

        return Grounding(str(self), self, targets)

    def _find(self, image_id: object) -> _AnnotatedPhoto | None:
        name = str(image_id)
        return self._photos.get(name) or self._photos.get(Path(name).name)

    def _require(self, image_id: ImageId) -> _AnnotatedPhoto:
        if photo := self._find(image_id):
            return photo
        raise UserError(f"image {image_id!r} is not in {self}")

    def _mask(self, thing: _Thing, width: int, height: int) -> NDArray[np.bool_]:
        outline = thing.get("segmentation")
        drawn = None
        if not outline:
            drawn = np.zeros((height, width), dtype=np.bool_)
        elif isinstance(outline, dict) and outline.get("size") == [height, width]:
            drawn = decode_run_lengths(outline.get("counts"), height, width)
        elif isinstance(outline, list) and all(_is_drawn(each, width, height) for each in outline):
            from pycocotools import mask  # Imported here: few commands read masks.

            merged = mask.merge(mask.frPyObjects(outline, height, width))
            drawn = np.asarray(mask.decode(merged), dtype=np.bool_)
        if drawn is None:
            known = "polygons, of three or more pairs of numbers in its image, nor run lengths"
            where = f"the segmentation of annotation {thing['id']} in {self} is neither"
            raise UserError(f"{where} {known} that add up to its size {[height, width]}")
        return drawn


def _is_drawn(polygon: object, width: int, height: int) -> bool:
    """Whether pycocotools can draw a polygon: it crashes on points far outside."""
    if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2:
        return False
    corners = zip(polygon, cycle((width, height)), strict=False)
    return all(type(edge) in (int, float) and -side <= edge <= 2 * side for edge, side in corners)


def decode_run_lengths(counts: object, height: int, width: int) -> NDArray[np.bool_] | None:
    """Decode COCO's run lengths, a list or a string, to a mask (height, width); else None.

    Runs go down the columns, outside and inside by turns. They must add up to the mask's size:
    pycocotools leaves the rest of the mask as the memory was.
    """
    with suppress(TypeError, ValueError, OverflowError):
        if isinstance(counts, list) and sum(counts) == height * width:
            return np.repeat(np.arange(len(counts)) % 2 == 1, counts).reshape(width, height).T
        if isinstance(counts, str):
            from pycocotools import mask

            packed = {"size": [height, width], "counts": counts.encode()}
            decoded = mask.decode(packed)
            if mask.encode(decoded) == packed:
                return np.asarray(decoded, dtype=np.bool_)
    return None
