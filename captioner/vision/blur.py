"""Blurs places of a photo, which removes their content from the model's input."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

BLUR_SHARE = 1 / 4
"""Standard deviation of the blur as a share of the photo's side: 56 pixels of 224.

Wide enough that captioners make no more of the blurred photo than of one flat colour; with a
sixteenth or an eighth they still see coloured blobs, and name them.
"""

SOFTNESS = 1 / 4
"""Standard deviation of the soft edge of a blurred place, in places: 4 pixels of 224."""


def blurred(pixels: Tensor) -> Tensor:
    """Blur photos (..., height, width) by a Gaussian; beyond the edge the photo is mirrored.

    The kernel ends after three standard deviations.
    """
    height, width = pixels.shape[-2:]
    deviation = BLUR_SHARE * min(height, width)
    across = _smoothing(width, deviation, pixels)  # (width, width)
    down = _smoothing(height, deviation, pixels)  # (height, height)
    return down @ pixels @ across.T


def blur_places(pixels: Tensor, content_free: Tensor, places: Tensor) -> Tensor:
    """Replace places of one photo, in N ways -> (N, 3, height, width).

    pixels, content_free: (3, height, width), the photo and its replacement, as from `blurred`.
    places: (N, rows, columns) boolean, True where the photo is replaced. A place is a rectangle
        of height / rows by width / columns pixels. Its edge is softened by `SOFTNESS` places, so
        that no new edge is drawn into the photo.
    """
    height, width = pixels.shape[-2:]
    rows, columns = places.shape[-2:]
    share = functional.interpolate(
        places.unsqueeze(1).to(pixels), size=(height, width), mode="nearest"
    )  # (N, 1, height, width)
    down = _smoothing(height, SOFTNESS * height / rows, pixels)
    across = _smoothing(width, SOFTNESS * width / columns, pixels)
    share = down @ share @ across.T  # (N, 1, height, width)
    return torch.lerp(pixels, content_free, share)  # (N, 3, height, width)


def _smoothing(length: int, deviation: float, like: Tensor) -> Tensor:
    """The matrix (length, length) that blurs a line of pixels; each of its rows sums to 1."""
    radius = math.ceil(3 * deviation)
    offsets = torch.arange(-radius, radius + 1)  # (2 * radius + 1,)
    kernel = torch.exp(-0.5 * (offsets.double() / deviation).square())
    kernel = kernel / kernel.sum()
    reached = torch.arange(length)[:, None] + offsets  # (length, 2 * radius + 1)
    reached = torch.where(reached < 0, -1 - reached, reached)  # mirrored, the edge pixel doubled
    reached = torch.where(reached >= length, 2 * length - 1 - reached, reached)
    matrix = torch.zeros(length, length, dtype=torch.float64)
    matrix.scatter_add_(1, reached, kernel.expand(length, -1).contiguous())
    return matrix.to(like)
