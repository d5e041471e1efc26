"""A generated captioning set: coloured shapes, one right caption each, and a box per word."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator as Random
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from pydantic import Field, model_validator
from typing_extensions import Self

from captioner.data.example import Example, ImageId
from captioner.data.instances import Box, Grounding, Target
from captioner.errors import UserError
from captioner.schema import Section

# RGB by name; both in the order of mention.
COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (220, 40, 40),
    "yellow": (245, 205, 30),
    "green": (40, 160, 70),
    "blue": (40, 95, 225),
    "purple": (145, 60, 185),
    "black": (30, 30, 30),
}
SHAPES: tuple[str, ...] = ("circle", "square", "triangle", "star", "cross")
GAP = 0.04  # Smallest distance between the boxes of two objects, as a share of the side.
MARGIN = 0.12  # How much larger the distance must be that decides which relation is named.
TILT = 10.0  # Largest rotation of an object in degrees, either way.
UNSEEN_SEED = 1_000_003  # Draws pictures to evaluate on; no training set has them.
_SUPERSAMPLING = 4  # antialiasing
_ATTEMPTS = 10_000  # random layouts tried before giving up
Points = NDArray[np.float64]  # (N, 2): x to the right, y down.


class ShapesConfig(Section):
    """Options of the pictures. Lengths are shares of the picture's side."""

    image_size: int = Field(112, ge=16, le=1_024, description="side of the picture in pixels")
    objects: tuple[int, int] = Field((1, 2), strict=False)
    """fewest and most objects in a picture, within 1 to 4"""
    object_size: tuple[float, float] = Field((0.22, 0.34), strict=False)
    """longer sides of boxes, within 0.05 to 0.5"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not 1 <= self.objects[0] <= self.objects[1] <= 4:
            raise ValueError(f"objects {self.objects} is not a range within 1 to 4")
        if not 0.05 <= self.object_size[0] <= self.object_size[1] <= 0.5:
            raise ValueError(f"object_size {self.object_size} is not a range within 0.05 to 0.5")
        return self


@dataclass(frozen=True)
class ShapesObject:
    """An object in a picture."""

    colour: str
    shape: str
    box: Box


@dataclass(frozen=True)
class ShapesExample:
    """A square RGB picture, and its objects in order of mention."""

    image: Image.Image
    objects: tuple[ShapesObject, ...]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Its only right caption: relations are by the larger distance of centres."""
        words: list[str] = []
        for item, following in itertools.zip_longest(self.objects, self.objects[1:]):
            words += ["a", item.colour, item.shape]
            if following:
                across, down = _distances(item.box, following.box)
                if abs(across) > abs(down):
                    words += ["left" if across > 0 else "right", "of"]
                else:
                    words.append("above" if down > 0 else "below")
        return tuple(words)

    @property
    def caption(self) -> str:
        """The words in a row."""
        return " ".join(self.words)

    @property
    def boxes(self) -> list[Box | None]:
        """Those of the words."""
        return self.boxes_of(self.words)

    def boxes_of(self, words: Sequence[str]) -> list[Box | None]:
        """The boxes of any caption's words. A colour and a shape name the object of both."""
        box_of = {(item.colour, item.shape): item.box for item in self.objects}
        boxes: list[Box | None] = [None] * len(words)
        for place, pair in enumerate(itertools.pairwise(words)):
            if pair in box_of:
                boxes[place] = boxes[place + 1] = box_of[pair]
        return boxes


def shapes_grounding(pictures: Mapping[ImageId, ShapesExample]) -> Grounding:
    """The objects of generated pictures, by image name."""

    def targets(image_id: ImageId, words: Sequence[str]) -> list[Target | None]:
        if picture := pictures.get(image_id):
            return [box and Target(picture.image.size, (box,)) for box in picture.boxes_of(words)]
        return [None] * len(words)

    return Grounding(f"the {len(pictures):,} generated pictures", pictures, targets)


def generate(count: int, seed: int, config: ShapesConfig | None = None) -> list[ShapesExample]:
    """The first `count` examples of a seed. Different seeds share no picture."""
    return [generate_example(index, seed, config) for index in range(count)]


def generate_example(index: int, seed: int, config: ShapesConfig | None = None) -> ShapesExample:
    """Example `index` (from 0) of a seed."""
    config = config or ShapesConfig()
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))
    fewest, most = config.objects
    number = int(random.integers(fewest, most + 1))
    kinds = sorted(random.choice(len(COLOURS) * len(SHAPES), size=number, replace=False).tolist())
    for _ in range(_ATTEMPTS):
        drafts = [_draft(random, kind, config) for kind in kinds]
        objects = tuple(item for item, _ in drafts)
        if _is_clear(objects, config):
            image = _background(random, config.image_size)
            for item, outline in drafts:
                _draw(image, item, outline, random)
            return ShapesExample(image, objects)
    raise UserError(f"shapes objects of {config} find no room in the picture")


def shapes_examples(pictures: Sequence[ShapesExample]) -> list[Example]:
    """Generated pictures as the photos of a split, named shapes-0 and so on."""
    named = enumerate(pictures)
    return [Example(f"shapes-{number}", each.image, (each.caption,)) for number, each in named]


def _draft(random: Random, kind: int, config: ShapesConfig) -> tuple[ShapesObject, Points]:
    """A randomly placed object and its outline; `kind` counts in order of mention."""
    colour, shape = list(COLOURS)[kind // len(SHAPES)], SHAPES[kind % len(SHAPES)]
    smallest, largest = config.object_size
    share = random.uniform(smallest, largest)
    angle = math.radians(random.uniform(-TILT, TILT))
    x, y = np.array(_CORNERS[shape], dtype=np.float64).T  # (N,) each
    cosine, sine = math.cos(angle), math.sin(angle)
    turned = np.stack([x * cosine - y * sine, x * sine + y * cosine], axis=1)  # (N, 2)
    moved = turned - turned.min(axis=0)  # It touches both axes.
    points: Points = moved * (share * config.image_size / moved.max())
    width, height = points.max(axis=0).tolist()
    left = random.uniform(0, config.image_size - width)
    top = random.uniform(0, config.image_size - height)
    item = ShapesObject(colour, shape, (left, top, left + width, top + height))
    return item, points + np.array([left, top])


def _is_clear(objects: Sequence[ShapesObject], config: ShapesConfig) -> bool:
    """Whether the objects keep their distance and every relation of the caption is clear."""
    for first, second in itertools.combinations(objects, 2):
        one, other = first.box, second.box
        gap = max(other[0] - one[2], one[0] - other[2], other[1] - one[3], one[1] - other[3])
        if gap < GAP * config.image_size:
            return False
    distances = (_distances(one.box, other.box) for one, other in itertools.pairwise(objects))
    least = MARGIN * config.image_size
    return all(abs(abs(across) - abs(down)) >= least for across, down in distances)


def _distances(box: Box, other: Box) -> tuple[float, float]:
    """How far the centre of `other` is to the right of and below that of `box`, in pixels."""
    across = (other[0] + other[2] - box[0] - box[2]) / 2
    down = (other[1] + other[3] - box[1] - box[3]) / 2
    return across, down


def _on_circle(corners: int, start: float = 0.0, radius: float = 1.0) -> list[list[float]]:
    """Corners of a regular polygon around the origin, the first at angle `start` from the top."""
    angles = [start + 2 * math.pi * index / corners for index in range(corners)]
    return [[math.sin(angle) * radius, -math.cos(angle) * radius] for angle in angles]


_ARM = 1 / 3
_INNER = _on_circle(5, math.pi / 5, 0.42)
_CORNERS = {
    "circle": _on_circle(64),
    "square": [[-1, -1], [1, -1], [1, 1], [-1, 1]],
    "triangle": _on_circle(3),
    "star": [corner for pair in zip(_on_circle(5), _INNER, strict=True) for corner in pair],
    "cross": [
        *([_ARM, -1], [_ARM, -_ARM], [1, -_ARM], [1, _ARM], [_ARM, _ARM], [_ARM, 1]),
        *([-_ARM, 1], [-_ARM, _ARM], [-1, _ARM], [-1, -_ARM], [-_ARM, -_ARM], [-_ARM, -1]),
    ],
}


def _background(random: Random, size: int) -> Image.Image:
    """A pale canvas whose brightness and tint change a little across it."""
    ends = random.uniform(222, 246) + random.uniform(-9, 9, size=(2, 3))  # (end, channel)
    angle = random.uniform(0, 2 * math.pi)
    y, x = np.mgrid[0:size, 0:size] / size - 0.5
    share = np.clip(0.5 + x * math.cos(angle) + y * math.sin(angle), 0, 1)[..., None]
    pixels = ends[0] * (1 - share) + ends[1] * share  # (size, size, 3)
    return Image.fromarray(pixels.round().astype(np.uint8))


def _draw(image: Image.Image, item: ShapesObject, outline: Points, random: Random) -> None:
    """Draw an object onto the picture, its colour slightly varied."""
    tint = random.uniform(-12, 12, size=3)
    red, green, blue = np.clip(np.array(COLOURS[item.colour]) + tint, 0, 255).round().tolist()
    left, top = math.floor(item.box[0]), math.floor(item.box[1])
    width, height = math.ceil(item.box[2]) - left, math.ceil(item.box[3]) - top
    enlarged = Image.new("L", (width * _SUPERSAMPLING, height * _SUPERSAMPLING), 0)
    # ImageDraw fills whole pixels; half a pixel less puts the edges in their place.
    points = (outline - (left, top)) * _SUPERSAMPLING - 0.5
    ImageDraw.Draw(enlarged).polygon(points.flatten().tolist(), fill=255)
    coverage = enlarged.reduce(_SUPERSAMPLING)
    image.paste((int(red), int(green), int(blue)), (left, top), coverage)
