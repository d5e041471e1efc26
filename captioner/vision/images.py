"""Loads photos from untrusted files."""

from __future__ import annotations

import io
import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Union

import numpy
from PIL import ExifTags, Image, ImageFile, ImageOps, TiffImagePlugin, UnidentifiedImageError

from captioner.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from captioner.vision.shards import ShardMember

ImageSource = Union[
    str,
    "os.PathLike[str]",
    bytes,
    BinaryIO,
    Image.Image,
    "numpy.ndarray[Any, Any]",
    "Tensor",
    "ShardMember",
]
"""Path, content, binary file, image, array (H, W, 3), tensor (3, H, W), or photo of a shard."""

MAXIMUM_PIXELS = 250_000_000
"""Default limit on width times height; telephones take up to 200 million."""

IMAGE_SUFFIXES: frozenset[str] = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".webp", ".avif"}
    | {".tif", ".tiff", ".bmp", ".dib", ".pcx", ".ppm", ".pgm", ".pbm", ".pnm", ".pfm"}
    | {".jp2", ".jpx", ".jpf", ".j2k", ".j2c", ".jpc", ".heic", ".heif", ".hif"}
)
"""Lower-case suffixes of the images taken from a folder."""

IS_ADDRESS = "is an address; photos are not fetched, only read"
"""The end of the sentence that refuses an address."""

# Not all of Pillow's: EPS starts other programs, TGA has no signature. From WEBP on, Pillow loads
# all its plugins, which takes 50 ms.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "WEBP", "TIFF", "AVIF", "JPEG2000", "DIB", "PCX")
_FORMATS_IN_WORDS = "JPEG, PNG, GIF, WebP, AVIF, HEIC, TIFF, JPEG 2000, BMP, PPM or PCX"

_HEIF_SIGNATURE = re.compile(rb"....ftyp(?:hei|hev|mif1|msf1)", re.DOTALL)
"""The first bytes of a HEIC file (ISO/IEC 23008-12, 10)."""

_WHITE = {"int8": 127, "uint12": 4095, "int16": 32767, "uint16": 65535}
"""White of greys by their type; black is 0."""

_ORIGINAL_SIZE = "original size"
"""The entry of `Image.info` of a photo that was decoded to fewer pixels."""

# Pillow reports oddities of files that it can read.
warnings.filterwarnings("ignore", module=r"PIL\.")
logging.getLogger("PIL").addHandler(logging.NullHandler())


def load_image(
    source: ImageSource,
    maximum_pixels: int = MAXIMUM_PIXELS,
    *,
    name: str | None = None,
    sufficient_side: int | None = None,
) -> Image.Image:
    """Load a photo upright, in RGB, as a new image without metadata.

    Applies the EXIF orientation, puts transparent images on white, scales greys of more than 8
    bits and floats to 8 bits (see `_own_range`), and takes the first frame of an animation (the
    current one of a Pillow image).

    maximum_pixels: limit on width times height, checked before decoding.
    name: the photo's name in errors; by default the path, or "the image".
    sufficient_side: divide width and height by the largest integer that leaves the shorter side at
        least so many pixels; a JPEG file is decoded to fewer pixels, which is much faster.
        `original_size` tells the photo's own size.
    """
    name = image_name(source) if name is None else name
    try:
        if hasattr(source, "dtype") and not isinstance(source, str):  # NumPy's strings have it too.
            source = _image_of_array(source, name)
        if isinstance(source, Image.Image):
            return _decode(source, name, maximum_pixels)
        with _binary_file(source, name) as file:
            image = _identify(file, name)
            if image.format == "PNG":
                image.verify()  # Decoding does not check sums: lost pixels would be black.
                image = _identify(file, name)
            elif image.format == "JPEG2000":
                _check_bits(image, file, name)
            return _decode(image, name, maximum_pixels, sufficient_side)
    except UserError:
        raise
    except Exception as error:  # Pillow's plugins raise many types of errors for damaged files.
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UserError(f"cannot read {name}: {reason or type(error).__name__}") from None


def shrink(photo: Image.Image, longest_side: int) -> Image.Image:
    """The photo with its longer side below twice `longest_side` pixels; see `original_size`."""
    return _reduce(photo, max(photo.size) // max(1, longest_side))


def original_size(photo: Image.Image) -> tuple[int, int]:
    """Width and height in its file of an upright photo from `load_image` or `shrink`."""
    width, height = photo.info.get(_ORIGINAL_SIZE, photo.size)
    return width, height


def with_original_size(photo: Image.Image, size: tuple[int, int]) -> Image.Image:
    """The photo, with width and height in its file for `original_size`; in place."""
    photo.info[_ORIGINAL_SIZE] = size
    return photo


def image_name(source: Any, unnamed: str = "the image") -> str:
    """The photo's name in errors: its path, or else `unnamed`."""
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source) or "''"
    # Files have `name` (an integer if opened from a descriptor), images `filename`.
    name = getattr(source, "name", None) or getattr(source, "filename", None)
    return os.fsdecode(name) if isinstance(name, (str, os.PathLike)) else unnamed


@contextmanager
def opened(path: Path) -> Iterator[ImageFile.ImageFile]:
    """A photo whose header has been read; raises `UserError` if it is none."""
    with _binary_file(path, str(path)) as file:
        yield _identify(file, str(path))


def is_photo(path: Path) -> bool:
    """Whether a file begins as a photo that can be read does."""
    try:
        with opened(path):
            return True
    except (UserError, OSError):
        return False


def is_address(name: str) -> bool:
    """Whether a name begins as that of a page: https://, say."""
    return re.match("[a-z][a-z0-9+.-]+://", name, re.IGNORECASE) is not None


def _image_of_array(array: Any, name: str) -> Image.Image:
    """An array (H, W, 3) or a tensor (3, H, W), red first, of uint8 or floats in [0, 1]."""
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


def _binary_file(source: Any, name: str) -> BinaryIO:
    if isinstance(source, (str, os.PathLike)):
        if not os.path.isfile(source):
            reason = "is not a file" if os.path.exists(source) else "does not exist"
            raise UserError(f"{name} {IS_ADDRESS if is_address(name) else reason}")
        return open(source, "rb")
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)
    if not hasattr(source, "read"):
        raise UserError(
            f"{name} is of the type {type(source).__name__}, not a path, bytes, a binary "
            "file, a Pillow image, an array or a tensor"
        )
    with suppress(AttributeError, OSError):  # A pipe.
        source.seek(0)
    return io.BytesIO(source.read())


def _identify(file: BinaryIO, name: str) -> ImageFile.ImageFile:
    """The image in `file`: reads the header, decodes nothing."""
    try:
        return Image.open(file, formats=_FORMATS)
    except Image.DecompressionBombError as error:
        raise UserError(f"{name} is too large: {error}") from None
    except UnidentifiedImageError:
        file.seek(0)
        if not _HEIF_SIGNATURE.match(file.read(12)):
            raise UserError(
                f"{name} is not an image that can be read ({_FORMATS_IN_WORDS}), or is damaged"
            ) from None
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        raise UserError(
            f'{name} is HEIC, which needs pillow-heif: pip install "captioner[heif]"'
        ) from None
    register_heif_opener()
    return Image.open(file, formats=["HEIF"])


def _check_bits(image: Image.Image, file: BinaryIO, name: str) -> None:
    """Raise `UserError` for colours of more than 8 bits in JPEG 2000.

    Pillow 13 rounds the brightest up to 256, of which it keeps the lower 8 bits: black.
    """
    file.seek(0)
    _, marker, sizes = file.read().partition(b"\xff\x4f\xff\x51")  # ISO/IEC 15444-1, A.5.1
    bits = (sizes[38] & 127) + 1 if marker else 8
    if bits > 8 and image.mode not in ("L", "I;16"):
        raise UserError(
            f"{name} is a JPEG 2000 of {bits} bits a colour, whose brightest Pillow reads as "
            "black: convert it to PNG"
        )


def _decode(
    image: Image.Image, name: str, maximum_pixels: int, sufficient_side: int | None = None
) -> Image.Image:
    width, height = image.size
    if 0 in (width, height):
        raise UserError(f"{name} has no pixels")
    if width * height > maximum_pixels:
        raise UserError(
            f"{name} is too large: {width} x {height} is {width * height:,} pixels, "
            f"the limit is {maximum_pixels:,}"
        )
    if sufficient_side is not None and image.format != "HEIF":  # A thumbnail may differ.
        image.draft(None, (sufficient_side, sufficient_side))
    image.load()
    size, opened = (width, height), image
    with suppress(Exception):  # EXIF data that are damaged leave the photo as it lies.
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
        if orientation in range(2, 9):
            image = ImageOps.exif_transpose(image)
            size = (height, width) if orientation >= 5 else size  # EXIF 2.32, table 4.
    pixels = _to_rgb(image, opened)
    pixels.info = {}
    if sufficient_side is not None:
        pixels = _reduce(with_original_size(pixels, size), min(pixels.size) // sufficient_side)
    return pixels


def _reduce(photo: Image.Image, divisor: int) -> Image.Image:
    """The photo with width and height divided by an integer, rounded up."""
    if divisor < 2:
        return photo
    return with_original_size(photo.reduce(divisor), original_size(photo))


def _to_rgb(image: Image.Image, opened: Image.Image) -> Image.Image:
    """A new RGB image of an image of any mode, on white. opened: it, before it was turned."""
    if image.mode[0] in "IF" or _type_of_greys(opened) == "int8":
        image = _to_8_bits(image, opened)
    if not image.has_transparency_data:
        return image.convert("RGB")  # A copy if it is RGB already.
    image = image.convert("RGBA")
    page = Image.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    return page


def _to_8_bits(image: Image.Image, opened: Image.Image) -> Image.Image:
    """Greys of more bits, signed ones and floats as 8 bits."""
    values, kind = numpy.asarray(image), _type_of_greys(opened)  # (height, width)
    if kind in ("int8", "uint32"):  # Pillow reads them as uint8 and int32.
        values = values.view(kind)
    values = values.astype(numpy.float32)
    black, white = (0, _WHITE[kind]) if kind in _WHITE else _own_range(values, image.mode == "F")
    values = numpy.nan_to_num(values, nan=black).clip(black, white) - black
    shares = values * (255 / (white - black or 1))
    if getattr(opened, "tag_v2", {}).get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == 0:
        shares = 255 - shares  # White is 0, which Pillow heeds in 8 bits only.
    return Image.fromarray((shares + 0.5).astype(numpy.uint8))


def _type_of_greys(opened: Image.Image) -> str:
    """The type of the greys in a file, as NumPy names it, or uint12; "" if unknown."""
    if isinstance(opened, TiffImagePlugin.TiffImageFile):
        sign = {1: "uint", 2: "int"}.get(opened.tag_v2.get(TiffImagePlugin.SAMPLEFORMAT, (1,))[0])
        return f"{sign}{opened.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE, (1,))[0]}"
    is_16_bit = opened.mode.startswith("I;16") or (opened.format, opened.mode) == ("PPM", "I")
    return "uint16" if is_16_bit else ""


def _own_range(values: numpy.ndarray[Any, Any], are_floats: bool) -> tuple[float, float]:
    """Black and white of floats and of 32 bits, whose type does not tell.

    White is the least of 1 (of floats), 255 and 65535 that no value exceeds, if the brightest is a
    sixteenth of it; otherwise the brightest. Black is 0, or the darkest of negative values.
    """
    finite = values[numpy.isfinite(values)]
    darkest, brightest = float(finite.min(initial=0)), float(finite.max(initial=0))
    whites = [1, 255, 65535] if are_floats else [255, 65535]
    fitting = [white for white in whites if white / 16 <= brightest <= white and darkest == 0]
    return darkest, min(fitting, default=brightest)
