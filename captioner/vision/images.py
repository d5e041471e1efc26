"""Loads photos from untrusted files."""

from __future__ import annotations

import io
import logging
import os
import re
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Union

import numpy
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from captioner.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

ImageSource = Union[
    str, "os.PathLike[str]", bytes, BinaryIO, Image.Image, "numpy.ndarray[Any, Any]", "Tensor"
]
"""A path, a file's content, a binary file, an image, or an array as `image_of_array` takes it."""

MAXIMUM_PIXELS = 250_000_000
"""Default limit on width times height; telephones take up to 200 million."""

MAXIMUM_SIDE = 65_535
"""Limit on width and on height, the most that JPEG can store."""

MAXIMUM_SCANS = 100
"""Limit on the scans of a JPEG file. Cameras write 1, progressive encoders some 10; each decodes
all pixels anew, so that thousands of empty ones hold a processor for minutes."""

IMAGE_SUFFIXES: frozenset[str] = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".webp", ".avif"}
    | {".tif", ".tiff", ".jp2", ".bmp", ".ppm", ".pgm", ".pbm", ".heic", ".heif", ".hif"}
)
"""Lower-case suffixes of the images taken from a folder."""

IS_ADDRESS = "is an address; photos are not fetched, only read"
"""The end of the sentence that refuses an address."""

# Not all of Pillow's: EPS starts other programs, TGA has no signature.
# The first group is loaded with Pillow; the second imports all its plugins and pillow-heif.
_FORMAT_GROUPS = (
    ("JPEG", "PNG", "GIF", "BMP", "PPM"),
    ("WEBP", "TIFF", "AVIF", "JPEG2000", "MPO", "HEIF"),
)
_FORMATS_IN_WORDS = "JPEG, PNG, GIF, WebP, AVIF, HEIC, TIFF, JPEG 2000, BMP or PPM"

_CUT_OFF = re.compile("truncated|EOF|not enough image data|but only got|end of file", re.IGNORECASE)
"""Messages of Pillow and libheif for a truncated file."""

_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")
"""Begins a segment of a JPEG file; none stands within a scan (ITU-T T.81, B.1.1)."""

_START_OF_SCAN, _END_OF_IMAGE = 0xDA, 0xD9

_EXCHANGE_SIDES = (5, 6, 7, 8)
"""EXIF orientations of photos that lie on a side (EXIF 2.32, table 4)."""

_HEIF_SIGNATURE = re.compile(rb"....ftyp(?:hei|hev|mif1|msf1)", re.DOTALL)
"""The first bytes of a HEIC file (ISO/IEC 23008-12, 10)."""

_HEIF_EXTENTS = re.compile(rb"\0\0\0\x14ispe....(....)(....)", re.DOTALL)
"""Boxes with width and height of what is coded, before cropping (ISO/IEC 23008-12, 6.5.3)."""

_ORIGINAL_SIZE = "original size"
"""The entry of `Image.info` of a photo that was decoded to fewer pixels."""

_pillow_lock = threading.Lock()
_pillow_users = 0
_pillow_changes = ExitStack()

logging.getLogger("PIL").addHandler(logging.NullHandler())  # Without one, Python prints its errors.


def load_image(
    source: ImageSource,
    maximum_pixels: int = MAXIMUM_PIXELS,
    *,
    name: str | None = None,
    sufficient_side: int | None = None,
) -> Image.Image:
    """Load a photo upright, in RGB, as a new image without metadata.

    Applies the EXIF orientation, puts transparent images on white, scales 16-bit greys to 8 bits,
    and takes the first frame of an animation (the current one of a Pillow image). Greys of 32 bits
    are clipped to 16, and floats to 0 to 255.

    maximum_pixels: limit on width times height, checked before decoding.
    name: the photo's name in errors; by default the path, or "the image".
    sufficient_side: divide width and height by the largest integer that leaves the shorter side at
        least so many pixels; a JPEG file is decoded to fewer pixels, which is much faster.
        `original_size` tells the photo's own size.

    Raises `UserError` for a photo that is missing, a folder, empty, not an image, truncated,
    damaged, without pixels, larger than `maximum_pixels` or `MAXIMUM_SIDE`, a JPEG file with more
    than `MAXIMUM_SCANS` scans, and as `image_of_array` does.
    """
    name = image_name(source) if name is None else name
    if hasattr(source, "dtype") and not isinstance(source, str):  # NumPy's strings have it too.
        source = image_of_array(source, name)
    with _pillow_silenced():
        if isinstance(source, Image.Image):
            with _damage_named(name):
                return _decode(source, name, maximum_pixels)
        with _binary_file(source, name) as file, _damage_named(name):
            image = _identify(file, name)
            if image.format in ("JPEG", "MPO"):
                _check_scans(file, name)
            elif image.format == "HEIF":
                _check_heif(file, image, name, maximum_pixels)
            elif image.format == "PNG":
                image.verify()  # Decoding does not check sums: lost pixels would be black.
                image = _identify(file, name)
            return _decode(image, name, maximum_pixels, sufficient_side)


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


def image_name(source: Any, unnamed: str = "the image") -> str:
    """The photo's name in errors: its path, or else `unnamed`."""
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source) or "''"
    # Files have `name` (an integer if opened from a descriptor), images `filename`.
    for attribute in ("name", "filename"):
        value = getattr(source, attribute, None)
        if isinstance(value, (str, os.PathLike)) and os.fspath(value):
            return os.fsdecode(value)
    return unnamed


def is_address(name: str) -> bool:
    """Whether a name begins as that of a page: https://, say."""
    return re.match("[a-z][a-z0-9+.-]+://", name, re.IGNORECASE) is not None


@contextmanager
def _binary_file(source: Any, name: str) -> Iterator[BinaryIO]:
    """A seekable, non-empty binary file with the content of a path, bytes or a file."""
    try:
        if isinstance(source, (str, os.PathLike)):
            mode = os.stat(source).st_mode
            if stat.S_ISDIR(mode):
                raise UserError(f"{name} is a folder, not an image")
            if not stat.S_ISREG(mode):
                raise UserError(f"{name} is a pipe or a device, not a file")
            file: BinaryIO = open(source, "rb")  # noqa: SIM115, closed below
        elif isinstance(source, (bytes, bytearray, memoryview)):
            file = io.BytesIO(source)
        elif hasattr(source, "read"):
            with suppress(AttributeError, OSError):  # A pipe.
                source.seek(0)
            file = io.BytesIO(source.read())
        else:
            raise UserError(
                f"{name} is of the type {type(source).__name__}, not a path, bytes, a binary "
                "file, a Pillow image, an array or a tensor"
            )
    except FileNotFoundError:
        reason = IS_ADDRESS if is_address(name) else "does not exist"
        raise UserError(f"{name} {reason}") from None
    except (OSError, TypeError, ValueError) as error:  # TypeError: it reads text.
        raise UserError(f"cannot read {name}: {_reason(error)}") from None
    with file:
        if file.seek(0, os.SEEK_END) == 0:
            raise UserError(f"{name} is empty")
        file.seek(0)
        yield file


def _identify(file: BinaryIO, name: str) -> Image.Image:
    """The image in `file`: reads the header, decodes nothing."""
    loaders = (Image.preinit, _load_all_plugins)
    for load_plugins, formats in zip(loaders, _FORMAT_GROUPS, strict=True):
        load_plugins()
        try:
            return Image.open(file, formats=[each for each in formats if each in Image.OPEN])
        except UnidentifiedImageError:
            continue
    file.seek(0)
    start = file.read(16)
    if _HEIF_SIGNATURE.match(start) and "HEIF" not in Image.OPEN:
        raise UserError(f'{name} is HEIC, which needs pillow-heif: pip install "captioner[heif]"')
    raise UserError(
        f"{name} is not an image that can be read ({_FORMATS_IN_WORDS}), or is damaged or cut off"
    )


def _load_all_plugins() -> None:
    Image.init()
    if "HEIF" not in Image.OPEN:
        with suppress(ImportError):
            from pillow_heif import register_heif_opener

            register_heif_opener()


def _check_scans(file: BinaryIO, name: str) -> None:
    """Raise `UserError` for more than `MAXIMUM_SCANS`."""
    file.seek(0)
    content = file.read()
    scans, place = 0, 2
    while marker := _MARKER.search(content, place):
        kind, place = content[marker.end() - 1], marker.end()
        if kind == _END_OF_IMAGE:  # Other pictures and films may follow it.
            break
        scans += kind == _START_OF_SCAN
        if scans > MAXIMUM_SCANS:
            raise UserError(f"{name} has more than {MAXIMUM_SCANS} scans, the limit")
        place += int.from_bytes(content[place : place + 2], "big")


def _check_heif(file: BinaryIO, image: Image.Image, name: str, maximum_pixels: int) -> None:
    """Raise `UserError` for a HEIC file with more pixels to decode than it shows.

    A crop, or a grid larger than its picture, would pass the limit on what is shown.
    """
    file.seek(0)
    sizes = [
        int.from_bytes(width, "big") * int.from_bytes(height, "big")
        for width, height in _HEIF_EXTENTS.findall(file.read())
    ]
    if tiling := image.info.get("tiling"):
        # The last row and column may reach beyond the picture.
        columns, rows = (max(1, tiling[key] - 1) for key in ("num_columns", "num_rows"))
        sizes.append(columns * tiling["tile_width"] * rows * tiling["tile_height"])
    if max(sizes, default=0) > maximum_pixels:
        raise UserError(
            f"{name} is too large: {max(sizes):,} pixels to decode, the limit is {maximum_pixels:,}"
        )


def _reduce(photo: Image.Image, divisor: int) -> Image.Image:
    """The photo with width and height divided by an integer, rounded up."""
    if divisor < 2:
        return photo
    return with_original_size(photo.reduce(divisor), original_size(photo))


def _decode(
    image: Image.Image, name: str, maximum_pixels: int, sufficient_side: int | None = None
) -> Image.Image:
    width, height = image.size
    if width < 1 or height < 1:
        raise UserError(f"{name} has no pixels: it is {width} x {height}")
    if max(width, height) > MAXIMUM_SIDE:
        raise UserError(
            f"{name} is too long: it is {width:,} x {height:,} pixels, "
            f"the limit of a side is {MAXIMUM_SIDE:,}"
        )
    if width * height > maximum_pixels:
        raise UserError(
            f"{name} is too large: {width} x {height} is {width * height:,} pixels, "
            f"the limit is {maximum_pixels:,}"
        )
    if sufficient_side is not None and image.format != "HEIF":  # A thumbnail may differ.
        image.draft(None, (sufficient_side, sufficient_side))
    image.load()
    size = (width, height)
    with suppress(Exception):  # EXIF data that are damaged leave the photo as it lies.
        orientation = image.getexif().get(ExifTags.Base.Orientation)
        if orientation in range(2, 9):
            image = ImageOps.exif_transpose(image)
            size = (height, width) if orientation in _EXCHANGE_SIDES else size
    pixels = _to_rgb(image)
    pixels.info = {}
    if sufficient_side is not None:
        divisor = min(pixels.size) // sufficient_side
        pixels = _reduce(with_original_size(pixels, size), divisor)
    return pixels


def _to_rgb(image: Image.Image) -> Image.Image:
    """A new RGB image of an image of any mode, on white."""
    if image.mode.startswith("I"):
        image = _to_8_bits(image)
    if image.mode == "La":
        image = image.convert("LA")
    if not image.has_transparency_data:
        return image.convert("RGB")  # a copy if it is RGB already
    if image.mode != "RGBA":
        image = image.convert("RGBA")
    page = Image.new("RGB", image.size, "white")
    page.paste(image, mask=image.getchannel("A"))
    return page


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Convert greys of 16 bits to L, or LA if one grey is transparent.

    Pillow reads some of their files as 32 bits; with no value above 255 those are of 8 bits.
    """
    values = numpy.asarray(image)  # (height, width)
    white = 65535 if image.mode.startswith("I;16") or values.max() > 255 else 255
    shares = values.clip(0, white).astype(numpy.float32)  # Changed in place: it may be 400 MB.
    shares *= 255 / white
    shares += 0.5
    grey = Image.fromarray(shares.astype(numpy.uint8))
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        opaque = (values != transparent).astype(numpy.uint8) * numpy.uint8(255)
        grey.putalpha(Image.fromarray(opaque))
    return grey


@contextmanager
def _pillow_silenced() -> Iterator[None]:
    """Suppress Pillow's warnings and limit of pixels while any thread is inside.

    Both are global: the first thread changes them, the last restores them. Pillow's limit,
    179 million pixels, is below what telephones take; `load_image` has its own.
    """
    global _pillow_users
    with _pillow_lock:
        _pillow_users += 1
        if _pillow_users == 1:
            _pillow_changes.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", module=r"PIL\.")
            _pillow_changes.callback(setattr, Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
            Image.MAX_IMAGE_PIXELS = None
    try:
        yield
    finally:
        with _pillow_lock:
            _pillow_users -= 1
            if _pillow_users == 0:
                _pillow_changes.close()


@contextmanager
def _damage_named(name: str) -> Iterator[None]:
    """Raise `UserError` for any exception, as Pillow's plugins raise for damaged files."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = _reason(error)
        if isinstance(error, EOFError) or _CUT_OFF.search(reason):
            sentence = "is cut off: the file ends before the image does"
        elif isinstance(error, MemoryError):
            sentence = "needs more memory than there is"
        else:
            sentence = f"is damaged or cut off and cannot be decoded ({reason})"
        raise UserError(f"{name} {sentence}") from None


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return " ".join(str(error).split()) or type(error).__name__
