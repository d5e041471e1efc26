"""Photos and photo files for the tests of several formats, and the demo photo's caption."""

import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

GOLDEN = Path(__file__).with_name("golden_captions.json")
"""Captions of the packaged model; `python tests/test_golden_captions.py` writes it anew."""

DEMO_CAPTION: str = json.loads(GOLDEN.read_text(encoding="utf-8"))["cat"]["caption"]


def smooth_photo(width: int = 24, height: int = 16) -> Image.Image:
    """Smooth colours, different in every corner."""
    rows, columns = np.mgrid[0:height, 0:width]
    channels = (rows * 255 // height, columns * 255 // width, (rows + columns) // 3 % 256)
    return Image.fromarray(np.stack(channels, axis=2).astype(np.uint8))


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return exif


def chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of PNG."""
    checksum = zlib.crc32(name + content).to_bytes(4, "big")
    return len(content).to_bytes(4, "big") + name + content + checksum


def segment(number: int, content: bytes) -> bytes:
    """A segment of JPEG."""
    return bytes([255, number]) + (len(content) + 2).to_bytes(2, "big") + content


def iptc(caption: bytes) -> bytes:
    """A caption as IPTC's dataset 2:120."""
    return b"\x1c\x02\x78" + len(caption).to_bytes(2, "big") + caption


def photoshop(record: bytes) -> bytes:
    """IPTC's datasets in a block of Photoshop."""
    return b"8BIM\x04\x04\0\0" + len(record).to_bytes(4, "big") + record + bytes(len(record) % 2)
