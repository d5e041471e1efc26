"""One attention map over its photo: full light where the model looked, dusk where it did not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from captioner.render.attention_checks import check_map, check_strength
from captioner.render.region import Region, check_region, pixels
from captioner.render.upsample import place

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Look:
    """The numbers behind the picture; the web page's script is given the same ones.

    flat_peak: a map whose highest value is below this many times 1 / L is scaled as if it reached
        it. So the small unevenness of a flat map is not blown up into a pattern.
    dimmed_light: share of its light a pixel keeps where the model did not look, at strength 1.
    dimmed_colour: share of its colour it keeps there.
    tint: colour blended into the places looked at, red, green, blue in [0, 1]: it shows on a dark
        photo, where dimming alone would not.
    tint_share: how much of that colour at the peak, at strength 1.
    contour_level: share of the peak at which the contour line runs.
    hatch_light: light kept on the hatched lines over the part of the photo that was not seen.
    """

    flat_peak: float = 3.0
    dimmed_light: float = 0.12
    dimmed_colour: float = 0.35
    tint: tuple[float, float, float] = (1.0, 0.72, 0.2)
    tint_share: float = 0.25
    contour_level: float = 0.5
    hatch_light: float = 0.55


LOOK = Look()


def overlay(
    photo: Image.Image, attention_map: npt.ArrayLike, region: Region, strength: float = 0.8
) -> Image.Image:
    """Draw one attention map over its photo; an RGB image of the photo's size.

    attention_map: (rows, columns), never negative, adding up to 1.
    region: the part of the photo the map covers; the rest is dimmed and hatched.
    strength: 0 leaves the photo as it is, 1 leaves hardly any light where the model did not look.

    The map is scaled by its own highest value, so that a wide map and a narrow one can both be
    read, but not below `Look.flat_peak` times 1 / L: a map that is even looks even. A line runs
    around the places with more than half of the highest value.

    Raises `ValueError` for a map as `check_map` does, for a region as `check_region` does, and for
    a strength outside [0, 1].
    """
    weights = check_map(attention_map)
    region = check_region(region, photo.size)
    strength = check_strength(strength)
    pixel_values = np.asarray(photo.convert("RGB"), dtype=np.float32) / 255  # (height, width, 3)
    light = brightness(place(weights, photo.size, region), weights.size)  # (height, width)

    grey = pixel_values @ np.array([0.299, 0.587, 0.114], dtype=np.float32)
    dusk = grey[..., None] + LOOK.dimmed_colour * (pixel_values - grey[..., None])
    dimmed = pixel_values + strength * (LOOK.dimmed_light * dusk - pixel_values)
    tint = np.array(LOOK.tint, dtype=np.float32)
    share = strength * LOOK.tint_share * light[..., None]
    drawn = dimmed + light[..., None] * (pixel_values - dimmed)
    drawn += share * (tint - drawn)

    first_column, first_row, end_column, end_row = pixels(region)
    seen = np.zeros(light.shape, dtype=bool)
    seen[first_row:end_row, first_column:end_column] = True
    hatch = 1 - strength * (1 - LOOK.hatch_light) * _hatching(light.shape)
    drawn = np.where(seen[..., None], drawn, drawn * hatch[..., None])

    inside = drawn[first_row:end_row, first_column:end_column]
    line = max(1.0, max(photo.size) / 450)
    for width, opacity, shade in ((3 * line, 0.35, 0.0), (line, 0.85, 1.0)):
        around = _contour(light[first_row:end_row, first_column:end_column], width)
        inside += (strength * opacity * around)[..., None] * (shade - inside)
    return Image.fromarray((drawn.clip(0, 1) * 255 + 0.5).astype(np.uint8))


def brightness(placed: npt.NDArray[np.float64], cells: int) -> Floats:
    """Scale an upsampled map (height, width) to [0, 1] as `overlay` shows it; L is `cells`."""
    scale = max(float(placed.max()), LOOK.flat_peak / cells)
    return (placed / scale).astype(np.float32)


def _hatching(shape: tuple[int, ...]) -> Floats:
    """Soft diagonal stripes (height, width) in [0, 1]."""
    period = max(6.0, max(shape) / 50)
    down, across = np.indices(shape, dtype=np.float32, sparse=True)
    phase = np.abs((across + down) / period % 1 - 0.5)  # 0 on the line, 0.5 between two lines
    stripes: Floats = np.clip(1.25 - phase * period / 1.5, 0, 1).astype(np.float32)
    return stripes


def _contour(light: Floats, width: float) -> Floats:
    """Opacity (height, width) of a smooth line of `width` pixels where the light is at its level.

    The distance of a pixel from the line is, to first order, how far its light is from the level
    divided by how steep the light is there.
    """
    if min(light.shape) < 2:
        return np.zeros_like(light)
    down, across = np.gradient(light)
    distance = np.abs(light - LOOK.contour_level) / np.maximum(np.hypot(down, across), 1e-6)
    opacity: Floats = np.clip(width / 2 + 0.5 - distance, 0, 1)
    return opacity
