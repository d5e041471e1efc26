"""Opens photos of untrusted files: what is read, and what is refused and why."""

from __future__ import annotations

import hashlib
import io
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeAlias

import numpy as np
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import SAMPLEFORMAT

from captioner.arrays import Array, Values
from captioner.errors import UserError, refuse_errors, refuse_missing
from captioner.vision.pixels import DIGEST, ORIGINAL_SIZE, upright_rgb
from captioner.vision.raw import is_raw

if TYPE_CHECKING:
    from torch import Tensor


Size: TypeAlias = tuple[int, int]  # Width and height.


class Readable(Protocol):
    """A photo inside another file, such as a `ShardMember` in its shard."""

    def read(self) -> bytes:
        """The photo's file."""


ImageSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | BinaryIO | Readable | Image.Image | Array | Tensor"
)
"""Path, content, binary file, photo of a shard, image, array (H, W, 3), or tensor (3, H, W).

A grey array or tensor is (H, W)."""

MAXIMUM_PIXELS = 250_000_000
"""Default limit on width times height; telephones take up to 200 million."""
LARGEST_FILE = 2**29  # Bytes.
HELD = 600_000_000  # Most bytes of memory for decoding a photo.
LONGEST_SIDE = 30_000  # pixels
LONGEST_SHAPE = 100  # Longer side over shorter.

# Not all of Pillow's: EPS starts other programs, TGA has no signature.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "WEBP", "TIFF", "AVIF", "JPEG2000", "DIB", "PCX")

IS_ADDRESS = "is an address; photos are not fetched, only read"
_KNOWN = "JPEG, PNG, GIF, WebP, AVIF, HEIC, TIFF, JPEG 2000, BMP, PPM or PCX"
# How HEIC begins, and no AVIF: ISO/IEC 23008-12, 10.
_HEIC = re.compile(rb"(?s)....ftyp(?!.*avif)(hei|hev|mif1|msf1)")

_NOT_READ = "which is not read: save it as PNG or JPEG"

_LIGHT = 100_000_000  # Bytes, and a quarter of the pixels of all scans, decoded in this process.
# Slow decoders, and how many times the bytes of the photo each takes.
_BUFFERS = {"WEBP": 4, "AVIF": 3, "HEIF": 3, "JPEG2000": 5}
# Bytes of a pixel by mode; of greys that are scaled to 8 bits, also of their copies.
_PIXEL_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 8, "I": 16, "F": 16}
_SCAN = b"\xff\xda"  # Begins a scan of a JPEG: SOS (ITU-T T.81, B.2.3).
_XMP = re.compile(rb"(?s)<\?xpacket .*?\?>\s*|<x:xmpmeta.*?</x:xmpmeta>\s*")

_PILLOWS_LIMIT = threading.Lock()


def load_here(
    source: ImageSource,
    name: str,
    maximum_pixels: int = MAXIMUM_PIXELS,
    sufficient_side: int | None = None,
    has_digest: bool = False,
    elsewhere: Callable[[bytes], Image.Image] | None = None,
) -> Image.Image:
    """Load a photo as `load_image` does. elsewhere: loads files that are large or slow.

    has_digest: of a file, with `DIGEST` in `Image.info`.
    """
    try:
        with refuse_errors(f"cannot read {name}"):  # Pillow's plugins raise many types of errors.
            if hasattr(source, "dtype") and not isinstance(source, str):  # NumPy's strings have it.
                source = _image_of_array(source, name)
            if isinstance(source, Image.Image):
                _refuse(source, name, source.size, maximum_pixels)
                return upright_rgb(source, source.size)
            content = _content(source, name)
            image = _identify(io.BytesIO(content), name, maximum_pixels)
            size = image.size
            if sufficient_side is not None and image.format != "HEIF":  # A thumbnail may differ.
                image.draft(None, (sufficient_side, sufficient_side))  # JPEG is decoded to fewer.
            _refuse(image, name, size, maximum_pixels, content)
            if elsewhere and _is_heavy(image, content, size):
                return elsewhere(content)
            if image.format == "PNG":
                image.verify()  # Decoding does not check sums: lost pixels would be black.
                image = _identify(io.BytesIO(content), name, maximum_pixels)
            coded = coded_digest(content, name) if has_digest else ""
            photo = upright_rgb(image, size, sufficient_side, has_digest and not coded)
            if coded:
                photo.info[DIGEST] = coded
            return photo
    except MemoryError:
        raise UserError(f"{name} cannot be decoded: it needs more memory than there is") from None


def _held(image: Image.Image, size: Size) -> int:
    """Bytes that decoding takes. size: in the file; the image's own may be scaled."""
    depth = _PIXEL_BYTES.get(image.mode, 4) * _BUFFERS.get(image.format or "", 1)
    # Of a progressive JPEG all coefficients are held, of 2 bytes, most at half the resolution.
    coefficients = 3 * size[0] * size[1] if image.info.get("progressive") else 0
    return image.width * image.height * depth + coefficients


def _refuse(
    image: Image.Image, name: str, size: Size, maximum_pixels: int, content: bytes = b""
) -> None:
    """Refuse what Pillow knows but is not decoded. size: in the file; the image may be scaled."""
    width, height = size
    longer, shorter = max(image.size), min(image.size)
    held = _held(image, size) if content else 0
    tags = getattr(image, "tag_v2", {})
    # ISO/IEC 15444-1, A.5.1, SIZ: the number of channels, and the bits of each.
    head = content.partition(b"\xff\x4f\xff\x51")[2] if image.format == "JPEG2000" else b""
    count = int.from_bytes(head[36:38], "big")
    has_bytes = head[38 : 38 + 3 * count : 3] == bytes([7]) * count
    is_signed = image.mode == "I" or tags.get(SAMPLEFORMAT) == (2,)
    pixels = f"{width} x {height} is {width * height:,} pixels, the limit is {maximum_pixels:,}"
    sides = f"{LONGEST_SIDE:,} pixels, and {LONGEST_SHAPE} times the shorter side"
    memory = f"{held / 1e6:,.0f} MB to decode, and the limit is {HELD / 1e6:,.0f} MB"
    faults = {
        "has no pixels": shorter == 0,
        f"is too large: {pixels}": width * height > maximum_pixels,
        f"is too long: it is {width} x {height}, and the limit is {sides}": (
            longer > min(LONGEST_SIDE, LONGEST_SHAPE * shorter)
        ),
        f"is too large: its {width} x {height} take {memory}": held > HELD,
        # Pillow reads some of them with the other sign.
        f"is TIFF of signed or 32-bit integers, {_NOT_READ}": tags and is_signed,
        # Pillow rounds 16 bits to (value + 128) >> 8 in 8 bits: 65,408 becomes black.
        f"is JPEG 2000 of other than 8 bits a colour, {_NOT_READ}": not has_bytes,
    }
    for fault, is_refused in faults.items():
        if is_refused:
            raise UserError(f"{name} {fault}")


def _is_heavy(image: ImageFile.ImageFile, content: bytes, size: Size) -> bool:
    """Whether decoding may take much memory or time."""
    if max(_held(image, size), len(content)) > _LIGHT or image.format in _BUFFERS:
        return True
    if image.format == "TIFF":
        return image.info.get("compression") != "raw"
    if image.format == "JPEG" and not image.info.get("progressive"):
        # After a first scan with all channels the decoder reads no other.
        # The head ends with _SCAN, the length of the rest, the count n of channels, 2 n + 3 bytes.
        head = content[: image.fp.tell()]  # type: ignore[union-attr]
        starts = {n: _SCAN + bytes([0, 6 + 2 * n, n]) for n in range(1, 5)}
        counts = [n for n in starts if head[-8 - 2 * n :].startswith(starts[n])]
        if counts[:1] == [len(image.getbands())]:
            return False
    if image.format not in ("JPEG", "MPO"):
        return False
    return content.count(_SCAN) * size[0] * size[1] > 4 * _LIGHT  # Every scan is decoded.


def original_size(photo: Image.Image) -> Size:
    """Width and height in its file of a photo from `load_image`, also after Pillow's `reduce`."""
    width, height = photo.info.get(ORIGINAL_SIZE, photo.size)
    return width, height


def coded_digest(content: bytes, name: str) -> str:
    """SHA-256 of a photo without its metadata, which `--embed` does not change.

    Of JPEG, the coded pixels and the orientation count; of raw files all; of HEIC and AVIF these
    and the Exif. "" of other formats, of which the decoded pixels count: `upright_rgb`.
    """
    with suppress(Exception):  # Damaged files raise many types.
        if content.startswith(b"\xff\xd8"):
            file = io.BytesIO(content)
            jpeg = JpegImageFile(file)  # It reads up to the pixels.
            head = f"{jpeg.quantization} {jpeg.getexif().get(ExifTags.Base.Orientation, 1)}"
            return hashlib.sha256(head.encode() + file.read()).hexdigest()
        if content[4:8] == b"ftyp":
            start = content.index(b"mdat")
            head = b"".join(re.findall(rb"(?s)irot.|imir.", content[:start])).hex()  # Orientation.
            return hashlib.sha256(head.encode() + _XMP.sub(b"", content[start:])).hexdigest()
    return hashlib.sha256(content).hexdigest() if is_raw(name) else ""


def photo_name(source: object, unnamed: str = "the image") -> str:
    """The photo's name in errors: its path, or else `unnamed`."""
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source) or "''"
    # Files have `name` (an integer if opened from a descriptor), images `filename`.
    name = getattr(source, "name", None) or getattr(source, "filename", None)
    return os.fsdecode(name) if isinstance(name, (str, os.PathLike)) else unnamed


def begins_as_photo(path: Path) -> bool:
    """Whether a file has the header of a photo that is read."""
    with suppress(UserError, OSError), path.open("rb") as file:
        return bool(_identify(file, str(path), MAXIMUM_PIXELS))
    return False


def _image_of_array(array: Values, name: str) -> Image.Image:
    """An RGB array (H, W, 3), a tensor (3, H, W), or a grey one (H, W): `load_image`."""
    described = f"{name} is an array of {array.dtype} and shape {tuple(array.shape)}"
    if hasattr(array, "detach"):  # A tensor; asked so, it needs no torch.
        array = array.detach().cpu()
        array = array.float() if array.is_floating_point() else array  # NumPy has no bfloat16.
        array = array.permute(1, 2, 0) if array.ndim == 3 else array  # (H, W, 3)
    values = np.asarray(array)
    if values.dtype.kind == "f" and values.min(initial=0) == 0 and values.max(initial=1) == 1:
        values = (values * 255 + 0.5).astype(np.uint8)
    is_photo = values.ndim == 2 or values.shape[2:] == (3,)
    if values.dtype != np.uint8 or not is_photo or not values.size:
        layout = "(H, W, 3), for a tensor (3, H, W), or grey (H, W), of uint8 or floats in 0 to 1"
        raise UserError(f"{described}, not {layout}")
    return Image.fromarray(values)


def _content(source: Any, name: str) -> bytes:
    """The photo's file, whole: a decoder needs all of it."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if isinstance(source, (str, os.PathLike)):
        if not os.path.isfile(source):
            reason = "is not a file" if os.path.exists(source) else "does not exist"
            raise UserError(f"{name} {IS_ADDRESS if '://' in name else reason}")
        check_file_size(os.path.getsize(source), name)
        return Path(source).read_bytes()
    if not hasattr(source, "read"):
        known = "a path, bytes, a binary file, a Pillow image, an array or a tensor"
        raise UserError(f"{name} is of the type {type(source).__name__}, not {known}")
    with suppress(AttributeError, OSError):  # A pipe.
        source.seek(0)
    return source.read()  # type: ignore[no-any-return]


def check_file_size(size: int, name: str) -> None:
    """Refuse a photo's file of too many bytes."""
    if size > LARGEST_FILE:
        raise UserError(f"{name} is too large: {size:,} bytes, the limit is {LARGEST_FILE:,}")


def _identify(file: BinaryIO, name: str, maximum_pixels: int) -> ImageFile.ImageFile:
    """The image in `file`: reads the header, decodes nothing."""
    file.seek(0)
    formats: tuple[str, ...] = _FORMATS
    if _HEIC.match(file.read(64)):
        with refuse_missing(f"{name} is HEIC, which needs pillow-heif", "heif"):
            from pillow_heif import register_heif_opener
        register_heif_opener()
        formats += ("HEIF",)
    try:
        return _open(file, formats, maximum_pixels)
    except Image.DecompressionBombError as error:
        raise UserError(f"{name} is too large: {error}") from None
    except UnidentifiedImageError:
        fault = f"is not an image that can be read ({_KNOWN}), or is damaged or compressed"
        raise UserError(f"{name} {fault}") from None


def _open(file: BinaryIO, formats: tuple[str, ...], maximum_pixels: int) -> ImageFile.ImageFile:
    """Open an image, also above Pillow's own limit, 178,956,970 pixels in every thread."""
    with suppress(Image.DecompressionBombError):
        return Image.open(file, formats=formats)
    with _PILLOWS_LIMIT:
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, maximum_pixels // 2
        try:
            return Image.open(file, formats=formats)  # It refuses twice as many.
        finally:
            Image.MAX_IMAGE_PIXELS = limit
