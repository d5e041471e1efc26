"""One attention map over its photo: bright where the model looked, dimmed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from captioner.render.region import Region, check_maps, check_region, pixels

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class OverlayStyle:
    """The numbers of the overlay; the script of the web page gets the same ones.

    flat_peak: lowest peak a map is scaled by, in units of 1 / L, so that a flat map looks flat.
    readable_grey: mean grey that a darker photo, and what is under the light, is brightened to.
    steepest: largest slope of that brightening, in black.
    dimmed_light, dimmed_colour: brightness and saturation without attention, as fractions.
    tint: red, green, blue in [0, 1], blended in where the attention is, by at most tint_share; on a
        dark photo dimming alone would not show.
    contour_level: fraction of the peak at which the contour line runs.
    hatch_light: brightness of the hatch lines over the part the encoder did not see.
    """

    flat_peak: float = 3.0
    readable_grey: float = 0.4
    steepest: float = 6.0
    dimmed_light: float = 0.12
    dimmed_colour: float = 0.35
    tint: tuple[float, float, float] = (1.0, 0.72, 0.2)
    tint_share: float = 0.25
    contour_level: float = 0.5
    hatch_light: float = 0.1


STYLE = OverlayStyle()

_GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # Of red, green and blue.


def overlay(
    photo: Image.Image, attention_map: npt.ArrayLike, region: Region, strength: float = 0.8
) -> Image.Image:
    """Draw one attention map over its photo; returns an RGB image of the photo's size.

    attention_map: (rows, columns). region: what it covers; the rest is dimmed and hatched.
    strength: 0 leaves the photo unchanged, 1 leaves it almost dark where the model did not look.

    A dark photo is brightened, and what is dark under the light as well. The map is scaled by its
    own peak, so that both wide and narrow maps are readable. A contour line is at half of the peak.
    """
    (weights,) = check_maps(np.asarray(attention_map)[np.newaxis])
    region = check_region(region, photo.size)
    if not 0 <= strength <= 1:
        raise ValueError(f"strength {strength} is not between 0 and 1")
    pixel_values: Floats = np.array(photo.convert("RGB"), np.float32) / np.float32(255)
    light = brightness(place(weights, photo.size, region), weights.size)  # (height, width)

    grey = pixel_values @ _GREY
    everywhere = _brightened(pixel_values, strength * _lift(float(grey.mean())))
    under_light = float((light * grey).sum() / max(float(light.sum()), 1e-6))
    lit = _brightened(pixel_values, strength * _lift(under_light))
    grey = everywhere @ _GREY
    darkest = grey[..., None] + STYLE.dimmed_colour * (everywhere - grey[..., None])
    dimmed = everywhere + strength * (STYLE.dimmed_light * darkest - everywhere)
    drawn = dimmed + light[..., None] * (lit - dimmed)
    share = strength * STYLE.tint_share * light[..., None]
    drawn += share * (np.array(STYLE.tint, dtype=np.float32) - drawn)

    first_column, first_row, end_column, end_row = pixels(region)
    covered = slice(first_row, end_row), slice(first_column, end_column)
    hatch = 1 - strength * (1 - STYLE.hatch_light) * _hatching(light.shape)
    hatch[covered] = 1
    drawn *= hatch[..., None]
    line = max(1.0, max(photo.size) / 450)
    for width, opacity, shade in ((3 * line, 0.35, 0.0), (line, 0.85, 1.0)):
        around = _contour(light[covered], width)
        drawn[covered] += (strength * opacity * around)[..., None] * (shade - drawn[covered])
    return Image.fromarray((drawn.clip(0, 1) * 255 + 0.5).astype(np.uint8))


def brightness(placed: npt.NDArray[np.float64], cells: int) -> Floats:
    """Scale an upsampled map (height, width) of `cells` cells to [0, 1], as `overlay` shows it."""
    scale = max(float(placed.max()), STYLE.flat_peak / cells)
    return (placed / scale).astype(np.float32)


def _lift(grey: float) -> float:
    """The k of `_brightened` for a mean grey: 0 from `OverlayStyle.readable_grey` on."""
    k = (STYLE.readable_grey - grey) / max(grey * (1 - STYLE.readable_grey), 1e-6)
    return min(max(k, 0.0), STYLE.steepest - 1)


def _brightened(values: Floats, k: float) -> Floats:
    """Values in [0, 1] on a curve through 0 and 1 with the slope 1 + k in 0."""
    return values * (1 + k) / (1 + k * values)


def _hatching(shape: tuple[int, ...]) -> Floats:
    """Soft diagonal stripes (height, width) in [0, 1]."""
    period = max(6.0, max(shape) / 50)
    down, across = np.indices(shape, dtype=np.float32, sparse=True)
    phase = np.abs((across + down) / period % 1 - 0.5)  # 0 on the line, 0.5 between two lines
    return np.clip(1.25 - phase * period / 1.5, 0, 1).astype(np.float32)  # type: ignore[no-any-return]


def _contour(light: Floats, width: float) -> Floats:
    """Opacity (height, width) of a smooth contour line of `width` pixels.

    A pixel's distance from it is about its brightness less the contour level, by the slope.
    """
    if min(light.shape) < 2:
        return np.zeros_like(light)
    down, across = np.gradient(light)
    distance = np.abs(light - STYLE.contour_level) / np.maximum(np.hypot(down, across), 1e-6)
    return np.clip(width / 2 + 0.5 - distance, 0, 1)  # type: ignore[no-any-return]


def place(
    attention_map: npt.ArrayLike, photo_size: tuple[int, int], region: Region
) -> npt.NDArray[np.float64]:
    """Upsample a map (rows, columns) to its region of a photo: (height, width).

    A pixel is a mean of the cells around it, weighted by a cubic B-spline, so that values keep
    their unit: a uniform map gives 1 / L everywhere. The spline is close to a Gaussian with a
    standard deviation of 0.58 cells; the figures of Xu et al. 2015 have one of 0.83. Values are
    constant from the centres of the outermost cells to the edge.

    photo_size: width and height in pixels. region: a pixel whose centre is outside is 0.
    """
    left, top, right, bottom = region
    first_column, first_row, end_column, end_row = pixels(region)
    weights = np.asarray(attention_map, dtype=np.float64)
    rows, columns = weights.shape
    # Centres of the pixels in the map, in cells from its top left corner.
    down = (np.arange(first_row, end_row) + 0.5 - top) / (bottom - top) * rows
    across = (np.arange(first_column, end_column) + 0.5 - left) / (right - left) * columns
    placed = np.zeros((photo_size[1], photo_size[0]))
    by_row = _spline_weights(rows, down) @ weights  # (height, columns)
    # Not `@`: the threads of NumPy's BLAS wait for each other where drawings run in threads.
    placed[first_row:end_row, first_column:end_column] = np.einsum(
        "yc,xc->yx", by_row, _spline_weights(columns, across)
    )  # (height, width)
    return placed


def _spline_weights(cells: int, positions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Weight of each cell at each position: (positions, cells); rows sum to 1.

    positions: in cells from the outer edge of the first cell; the centre of cell i is at i + 0.5.
    """
    from_centre = np.clip(positions - 0.5, 0, cells - 1)  # constant beyond the outermost centres
    distance = np.abs(from_centre[:, np.newaxis] - np.arange(-1, cells + 1))
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = np.clip(2 - distance, 0, None) ** 3 / 6
    spline = np.where(distance < 1, near, far)  # cubic B-spline
    spline[:, 1] += spline[:, 0]  # The outermost cells are repeated beyond the edge.
    spline[:, -2] += spline[:, -1]
    return spline[:, 1:-1]
