"""Photos of every depth and colour space against values worked out by hand, or refused."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from captioner.errors import UserError
from captioner.vision.images import load_image

Array = np.ndarray[Any, Any]
LEVELS = [0, 1 / 3, 2 / 3, 1]
# One row, a column a colour: all of some levels of each channel, but of the first two if there
# are four; (1, columns, channels), in 0 to 1.
COLOURS = {
    1: [[grey] for grey in LEVELS],
    2: [[grey, alpha] for grey in LEVELS for alpha in LEVELS],
    3: [[red, green, blue] for red in (0, 1) for green in (0, 1) for blue in LEVELS],
    4: [[first, first, third, fourth] for first in (0, 1) for third in LEVELS for fourth in LEVELS],
}
CHANNELS = {"grey": 1, "white is 0": 1, "grey+alpha": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}


def values_of(space: str, bits: int) -> Array:
    """(8, columns, channels): the colours in integers of so many bits."""
    row = np.array([COLOURS[CHANNELS[space]]]) * (2**bits - 1)
    return np.round(row).astype(int).repeat(8, axis=0)


def shown(values: Array, bits: int, space: str) -> Array:
    """What a person sees of the values, (8, columns, 3) in 0 to 255, on white."""
    light = values / (2**bits - 1)
    if space == "CMYK":
        light = (1 - light[..., :3]) * (1 - light[..., 3:])
    elif space == "white is 0":
        light = 1 - light
    elif space in ("grey+alpha", "RGBA"):
        alpha = light[..., -1:]
        light = light[..., :-1] * alpha + 1 - alpha
    return np.broadcast_to(light * 255, (*values.shape[:2], 3))


def packed(row: Array, bits: int, order: str) -> bytes:
    """Values of a row, of fewer bits than a byte one after the other. order: of two bytes."""
    if bits in (8, 16):
        return row.astype(f"{order}u{bits // 8}").tobytes()
    digits = "".join(format(value, f"0{bits}b") for value in row.flat)
    size = -(-len(digits) // 8)
    return int(digits.ljust(8 * size, "0"), 2).to_bytes(size, "big")


def png(values: Array, bits: int, space: str) -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    kind = {"grey": 0, "RGB": 2, "grey+alpha": 4, "RGBA": 6}[space]
    head = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], bits, kind, 0, 0, 0)
    rows = b"".join(b"\0" + packed(row, bits, ">") for row in values)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def tiff(values: Array, bits: int, space: str) -> bytes:
    height, width, channels = values.shape
    data = b"".join(packed(row, bits, "<") for row in values)
    photometric = {"white is 0": 0, "RGB": 2, "RGBA": 2, "CMYK": 5}.get(space, 1)
    alpha = [(338, 2)] if space in ("grey+alpha", "RGBA") else []
    end = 10 + 12 * (9 + len(alpha)) + 4  # Of the table.
    depth = bits * 0x10001 if channels < 3 else end
    one_each = [(256, width), (257, height), (262, photometric), (273, end + 8), (277, channels)]
    one_each += [(259, 1), (278, height), (279, len(data)), *alpha]
    entries = sorted([(tag, 4, 1, value) for tag, value in one_each] + [(258, 3, channels, depth)])
    table = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    start = b"II*\0" + struct.pack("<IH", 8, len(entries))
    return start + table + bytes(4) + struct.pack("<4H", *[bits] * 4) + data


def pnm(values: Array, bits: int, space: str) -> bytes:
    kind = {"grey": 5, "RGB": 6}[space]
    head = f"P{kind} {values.shape[1]} {values.shape[0]} {2**bits - 1}\n"
    return head.encode() + values.astype(">u2" if bits > 8 else "u1").tobytes()


def jpeg_2000(values: Array, bits: int, space: str) -> bytes:
    """A lossless codestream: the packets of greys of 16 bits, one a channel, joined."""
    packets = b""
    for channel in np.moveaxis(values, 2, 0):
        file = io.BytesIO()
        grey = Image.fromarray((channel + 2**15 - 2 ** (bits - 1)).astype(np.uint16))
        grey.save(file, "JPEG2000", no_jp2=True, num_resolutions=1)
        stream = file.getvalue()
        packets += stream[stream.index(b"\xff\x93") + 2 : -2]
    count, tile = values.shape[2], stream.index(b"\xff\x90")  # ISO/IEC 15444-1, annex A.
    size = b"\xff\x51" + struct.pack(">H", 38 + 3 * count) + stream[6:40]
    size += struct.pack(">H", count) + bytes([bits - 1, 1, 1]) * count
    part = (
        stream[tile : tile + 6]
        + struct.pack(">I", 14 + len(packets))
        + stream[tile + 10 : tile + 12]
    )
    return b"\xff\x4f" + size + stream[45:tile] + part + b"\xff\x93" + packets + b"\xff\xd9"


def jp2(values: Array, bits: int, space: str) -> bytes:
    """A file of JPEG 2000, which names the colour space."""

    def box(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", 8 + len(data)) + name + data

    shape = struct.pack(">IIH4B", *values.shape, bits - 1, 7, 0, 0)
    colours = b"\1\0\0" + struct.pack(">I", {"CMYK": 12, "RGB": 16, "grey": 17}[space])
    head = box(b"jp2h", box(b"ihdr", shape) + box(b"colr", colours))
    start = box(b"jP  ", b"\r\n\x87\n") + box(b"ftyp", b"jp2 \0\0\0\0jp2 ")
    return start + head + box(b"jp2c", jpeg_2000(values, bits, space))


WRITERS = {"PNG": png, "TIFF": tiff, "PNM": pnm, "JPEG 2000": jpeg_2000, "JP2": jp2}
ALL = (1, 2, 4, 8, 10, 12, 16)
# The depths that are read right; the others of `ALL` are refused.
READ = {
    ("PNG", "grey"): (1, 2, 4, 8, 16),
    ("PNG", "grey+alpha"): (8, 16),
    ("PNG", "RGB"): (8, 16),
    ("PNG", "RGBA"): (8, 16),
    ("TIFF", "grey"): (1, 2, 4, 8, 12, 16),
    ("TIFF", "white is 0"): (1, 2, 4, 8, 16),
    ("TIFF", "grey+alpha"): (8,),
    ("TIFF", "RGB"): (8, 16),
    ("TIFF", "RGBA"): (8, 16),
    ("TIFF", "CMYK"): (8, 16),
    ("PNM", "grey"): ALL,
    ("PNM", "RGB"): ALL,
    ("JPEG 2000", "grey"): ALL,
    ("JPEG 2000", "grey+alpha"): (1, 2, 4, 8),
    ("JPEG 2000", "RGB"): (1, 2, 4, 8),
    ("JPEG 2000", "RGBA"): (1, 2, 4, 8),
    ("JP2", "grey"): ALL,
    ("JP2", "RGB"): (1, 2, 4, 8),
    ("JP2", "CMYK"): (1, 2, 4, 8),
}
REFUSALS = {
    "TIFF": "a is not an image that can be read (",
    "JPEG 2000": "a is JPEG 2000 of more than 8 bits a colour, which is not read: save it as PNG",
}
ROWS = [(*row, bits) for row in READ for bits in ALL if row[0] != "PNG" or bits in READ[row]]


@pytest.mark.parametrize(("kind", "space", "bits"), ROWS)
def test_every_depth_is_read_right_or_refused(kind: str, space: str, bits: int) -> None:
    values = values_of(space, bits)
    content = WRITERS[kind](values, bits, space)
    if bits in READ[kind, space]:
        difference = np.abs(np.array(load_image(content), float) - shown(values, bits, space))
        assert difference.max() <= 1, f"column {difference.max(axis=(0, 2)).argmax()}"
    else:
        with pytest.raises(UserError) as refusal:
            load_image(content, name="a")
        assert str(refusal.value).startswith(REFUSALS["TIFF" if kind == "TIFF" else "JPEG 2000"])
