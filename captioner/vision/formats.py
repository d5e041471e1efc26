"""Opens, decodes and knows photos of untrusted files: the formats that are read or refused."""

from __future__ import annotations

import hashlib
import io
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeAlias

import numpy as np
from PIL import ExifTags, Image, ImageFile, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile

from captioner.arrays import Array, Values
from captioner.errors import UserError, reason_of, refuse_missing
from captioner.vision.pixels import BUDGET, DEPTHS, ORIGINAL_SIZE, check_size, decode, is_heavy
from captioner.vision.raw import is_raw

if TYPE_CHECKING:
    from torch import Tensor


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

IS_ADDRESS = "is an address; photos are not fetched, only read"
# Not all of Pillow's: EPS starts other programs, TGA has no signature.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "WEBP", "TIFF", "AVIF", "JPEG2000", "DIB", "PCX")

_REFUSED = {
    rb"\Z": "is empty",
    # gzip, compress, bzip2, xz, Zstandard, lz4, lzip, ZIP, 7-Zip and RAR.
    rb"\x1f[\x8b\x9d]|BZh|\xfd7zXZ|\(\xb5/\xfd|\x04\x22M\x18|LZIP|PK\x03\x04|7z\xbc\xaf|Rar!": (
        "is compressed; unpack it first"
    ),
    rb"(?!....ftyp(?:hei|hev|mif1|msf1))": (  # Not HEIC (ISO/IEC 23008-12, 10).
        "is not an image that can be read (JPEG, PNG, GIF, WebP, AVIF, HEIC, TIFF, JPEG 2000, BMP, "
        "PPM or PCX), or is damaged"
    ),
}
"""By the first bytes of what Pillow does not know; `check_size` has what is too large."""

DIGEST = "digest"
"""In `Image.info`: `content_digest` of the photo's file."""

_XMP = re.compile(rb"(?s)<\?xpacket .*?\?>\s*|<x:xmpmeta.*?</x:xmpmeta>\s*")

_PILLOWS_LIMIT = threading.Lock()

Hold = Callable[[int], AbstractContextManager[None]]
"""Waits until so many bytes may be held, and holds them."""


def load_here(
    source: ImageSource,
    name: str,
    maximum_pixels: int = MAXIMUM_PIXELS,
    sufficient_side: int | None = None,
    hold: Hold = BUDGET.hold,
    elsewhere: Callable[..., Image.Image] | None = None,
) -> Image.Image:
    """Load a photo as `load_image` does. elsewhere: loads files that are large or slow."""
    try:
        if hasattr(source, "dtype") and not isinstance(source, str):  # NumPy's strings have it too.
            source = _image_of_array(source, name)
        if isinstance(source, Image.Image):
            check_size(source, name, maximum_pixels)
            return decode(source, source.size)
        with _binary_file(source, name) as file:
            image = _identify(file, name, maximum_pixels)
            size = image.size
            held = check_size(image, name, maximum_pixels, sufficient_side)
            if elsewhere and is_heavy(image, file, held, size):
                is_path = isinstance(source, (str, os.PathLike))
                content = os.path.abspath(photo_name(source)) if is_path else file
                options = {"maximum_pixels": maximum_pixels, "sufficient_side": sufficient_side}
                return elsewhere(content, name, **options)
            with hold(held + file.seek(0, os.SEEK_END)):
                if image.format == "PNG":
                    image.verify()  # Decoding does not check sums: lost pixels would be black.
                    image = _identify(file, name, maximum_pixels)
                if image.format == "JPEG2000":
                    _check_depth(image, file, name)
                return decode(image, size, sufficient_side)
    except UserError:
        raise
    except MemoryError:
        raise UserError(f"{name} cannot be decoded: it needs more memory than there is") from None
    except Exception as error:  # Pillow's plugins raise many types of errors for damaged files.
        reason = getattr(error, "strerror", None) or reason_of(error)
        raise UserError(f"cannot read {name}: {reason}") from None


def original_size(photo: Image.Image) -> tuple[int, int]:
    """Width and height in its file of a photo from `load_image`, also after Pillow's `reduce`."""
    size: tuple[int, int] = photo.info.get(ORIGINAL_SIZE, photo.size)
    return size


def content_digest(content: bytes, name: str, load: Callable[[bytes], Image.Image]) -> str:
    """SHA-256 of a photo without its metadata, which `--embed` does not change.

    Of JPEG, the coded pixels and the orientation count; of raw files all; of HEIC and AVIF these
    and the Exif; of other formats, the pixels that `load` decodes. "" of what cannot be read.
    """
    head = ""
    with suppress(Exception):  # Damaged files raise many types.
        if content.startswith(b"\xff\xd8"):
            file = io.BytesIO(content)
            jpeg = JpegImageFile(file)  # It reads up to the pixels.
            head = f"{jpeg.quantization} {jpeg.getexif().get(ExifTags.Base.Orientation, 1)}"
            content = file.read()
        elif content[4:8] == b"ftyp":
            start = content.index(b"mdat")
            head = b"".join(re.findall(rb"(?s)irot.|imir.", content[:start])).hex()  # Orientation.
            content = _XMP.sub(b"", content[start:])
        elif not is_raw(name):
            image = load(content)
            head, content = f"{image.size}", image.tobytes()
        return hashlib.sha256(head.encode() + content).hexdigest()
    return ""


def photo_name(source: object, unnamed: str = "the image") -> str:
    """The photo's name in errors: its path, or else `unnamed`."""
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source) or "''"
    # Files have `name` (an integer if opened from a descriptor), images `filename`.
    name = getattr(source, "name", None) or getattr(source, "filename", None)
    return os.fsdecode(name) if isinstance(name, (str, os.PathLike)) else unnamed


@contextmanager
def opened(path: Path) -> Iterator[ImageFile.ImageFile]:
    """A photo whose header has been read."""
    with _binary_file(path, str(path)) as file:
        yield _identify(file, str(path), MAXIMUM_PIXELS)


def _image_of_array(array: Values, name: str) -> Image.Image:
    """An RGB array (H, W, 3), a tensor (3, H, W), or a grey one (H, W): `load_image`."""
    described = f"{name} is an array of {array.dtype} and shape {tuple(array.shape)}"
    if hasattr(array, "detach"):  # A tensor; asked so, it needs no torch.
        array = array.detach().cpu()
        array = array.float() if array.is_floating_point() else array  # NumPy has no bfloat16.
        array = array.permute(1, 2, 0) if array.ndim == 3 else array  # (H, W, 3)
    values = np.asarray(array)
    if values.dtype.kind == "f" and values.size:
        if values.min() >= 0 and values.max() <= 1:
            values = (values * 255 + 0.5).astype(np.uint8)
        else:
            described += f" with values from {values.min():g} to {values.max():g}"
    is_photo = values.ndim == 2 or values.shape[2:] == (3,)
    if values.dtype != np.uint8 or not is_photo or not values.size:
        layout = "(H, W, 3), for a tensor (3, H, W), or grey (H, W), of uint8 or floats in 0 to 1"
        raise UserError(f"{described}, not {layout}")
    return Image.fromarray(values)


def _binary_file(source: Any, name: str) -> BinaryIO:
    if isinstance(source, (str, os.PathLike)):
        if not os.path.isfile(source):
            reason = "is not a file" if os.path.exists(source) else "does not exist"
            raise UserError(f"{name} {IS_ADDRESS if '://' in name else reason}")
        return open(source, "rb")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)
    if not hasattr(source, "read"):
        known = "a path, bytes, a binary file, a Pillow image, an array or a tensor"
        raise UserError(f"{name} is of the type {type(source).__name__}, not {known}")
    with suppress(AttributeError, OSError):  # A pipe.
        source.seek(0)
    return io.BytesIO(source.read())


def _identify(file: BinaryIO, name: str, maximum_pixels: int) -> ImageFile.ImageFile:
    """The image in `file`: reads the header, decodes nothing."""
    try:
        return _open(file, _FORMATS, maximum_pixels)
    except Image.DecompressionBombError as error:
        raise UserError(f"{name} is too large: {error}") from None
    except UnidentifiedImageError:
        file.seek(0)
        head = file.read(16)
    for pattern, fault in _REFUSED.items():
        if re.match(pattern, head, re.DOTALL):
            raise UserError(f"{name} {fault}")
    with refuse_missing(f"{name} is HEIC, which needs pillow-heif", "heif"):
        from pillow_heif import register_heif_opener
    register_heif_opener()
    try:
        return _open(file, ("HEIF",), maximum_pixels)
    except UnidentifiedImageError:
        raise UserError(f"{name} is a damaged HEIC photo") from None


def _check_depth(image: Image.Image, file: BinaryIO, name: str) -> None:
    """Note the bits of each channel of JPEG 2000; refuse colour of more than 8.

    Pillow rounds colours of 16 bits to (value + 128) >> 8 in 8 bits: 65,408 becomes black.
    """
    place = file.tell()
    file.seek(0)
    _, start, head = file.read(1 << 20).partition(b"\xff\x4f\xff\x51")  # The codestream's.
    file.seek(place)
    count = int.from_bytes(head[36:38], "big")  # ISO/IEC 15444-1, A.5.1: SIZ.
    depths = [(depth & 127) + 1 for depth in head[38 : 38 + 3 * count : 3]]
    if start and max(depths, default=0) > 8 and image.mode[0] != "I":
        fault = "is JPEG 2000 of more than 8 bits a colour, which is not read"
        raise UserError(f"{name} {fault}: save it as PNG, TIFF or JPEG")
    image.info[DEPTHS] = depths


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
