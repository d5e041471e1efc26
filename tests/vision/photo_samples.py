"""Photos and photo files for the tests of several formats."""

import io
import struct
from typing import Any

import numpy
from PIL import Image


def smooth_photo(width: int = 24, height: int = 16) -> Image.Image:
    """Smooth colours, different in every corner."""
    rows, columns = numpy.mgrid[0:height, 0:width]
    channels = (rows * 255 // height, columns * 255 // width, (rows + columns) // 3 % 256)
    return Image.fromarray(numpy.stack(channels, axis=2).astype(numpy.uint8))


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def tiff(
    values: bytes, width: int, bits: int, kind: int, white: int = 1, order: str = "<"
) -> bytes:
    """A TIFF file of one row of greys. kind: 1 unsigned, 2 signed, 3 floats. white: 0 or 1."""
    tags = {256: width, 257: 1, 258: bits, 259: 1, 262: white, 273: 8, 277: 1, 278: 1}
    entries = {**tags, 279: len(values), 339: kind}
    file = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8 + len(values))
    file += values + struct.pack(f"{order}H", len(entries))
    for tag, value in entries.items():
        file += struct.pack(f"{order}HHIHH", tag, 3, 1, value, 0)  # 3: of 16 bits
    return file + bytes(4)
