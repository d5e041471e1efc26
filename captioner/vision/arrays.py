"""Photos given as arrays of numbers."""

from __future__ import annotations

from typing import Any

import numpy
from PIL import Image

from captioner.errors import UserError


def image_of_array(array: Any, name: str) -> Image.Image:
    """A NumPy array (H, W, 3) or a tensor (3, H, W), red first, as an image.

    array: uint8, or floats in [0, 1]. name: the photo's name in errors.
    Raises `UserError` for another shape, type or range.
    """
    is_tensor = hasattr(array, "detach")  # Asked like that, it needs no import of torch.
    layout, channels = ("(3, H, W)", 0) if is_tensor else ("(H, W, 3)", -1)
    shape = tuple(array.shape)
    if len(shape) != 3 or shape[channels] != 3 or 0 in shape:
        raise UserError(f"{name} is an array of shape {shape}, not {layout}")
    if is_tensor:
        array = array.detach().permute(1, 2, 0).cpu()
        array = array.float() if array.is_floating_point() else array  # NumPy has no bfloat16.
    values = numpy.asarray(array)
    if values.dtype.kind == "f":
        if not (values.min() >= 0 and values.max() <= 1):  # NaN is refused as well.
            raise UserError(f"{name} has numbers outside 0 to 1, the range of floats")
        values = (values * 255 + 0.5).astype(numpy.uint8)
    if values.dtype != numpy.uint8:
        raise UserError(f"{name} is an array of {values.dtype}, not of uint8 or floats")
    return Image.fromarray(values)
