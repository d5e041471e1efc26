"""Generated pictures unlike any photo: what a captioner should be unsure of.

They need no files. Each kind is drawn by a program of its own, and belongs to a family; a family
has kinds to fit on and kinds to measure on, so that no score is of a kind that it was fitted on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image

from captioner.data import outlier_drawings as drawings
from captioner.data import outlier_screens as screens
from captioner.data import outlier_surfaces as surfaces
from captioner.data.outlier_surfaces import Size


@dataclass(frozen=True)
class OutlierKind:
    """One kind of picture that is no photo.

    family: noise, plain, screenshots or drawings. held_out: whether it is for measuring, not for
    fitting. draw: makes one picture, RGB, of a size in pixels, from what a generator draws.
    """

    name: str
    family: str
    held_out: bool
    draw: Callable[[np.random.Generator, Size], Image.Image]


OUTLIER_KINDS: tuple[OutlierKind, ...] = (
    OutlierKind("pixel noise", "noise", False, surfaces.pixel_noise),
    OutlierKind("clouds", "noise", False, surfaces.clouds),
    OutlierKind("grey noise", "noise", True, surfaces.grey_noise),
    OutlierKind("stripes", "noise", True, surfaces.stripes),
    OutlierKind("gradient", "plain", False, surfaces.gradient),
    OutlierKind("plain colour", "plain", True, surfaces.plain),
    OutlierKind("windows", "screenshots", False, screens.windows),
    OutlierKind("table", "screenshots", False, screens.table),
    OutlierKind("code", "screenshots", True, screens.code),
    OutlierKind("page of text", "screenshots", True, screens.page),
    OutlierKind("scribbles", "drawings", False, drawings.scribbles),
    OutlierKind("diagram", "drawings", False, drawings.diagram),
    OutlierKind("figures", "drawings", True, drawings.figures),
    OutlierKind("plot", "drawings", True, drawings.plot),
)
"""All kinds; every family has one or more for fitting and one or more for measuring."""

_SIZES: tuple[Size, ...] = ((320, 240), (240, 320), (400, 300), (256, 256), (480, 270))


def draw_outliers(kind: OutlierKind, count: int, seed: int) -> list[Image.Image]:
    """So many different pictures of a kind, of several sizes; the same for the same seed."""
    pictures = []
    for number in range(count):
        # By name, so that a kind draws the same wherever it stands in the list.
        random = np.random.default_rng([seed, number, *kind.name.encode()])
        size = _SIZES[int(random.integers(len(_SIZES)))]
        pictures.append(kind.draw(random, size))
    return pictures
