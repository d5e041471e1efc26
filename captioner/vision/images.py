"""Finds photos by files, folders and patterns, and loads them from untrusted files."""

from __future__ import annotations

import glob
import io
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias
from urllib.parse import unquote

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from captioner.errors import UserError, counted, refuse_missing
from captioner.files import existing_path
from captioner.vision.pixels import BUDGET, DEPTHS, ORIGINAL_SIZE, check_size, decode, is_heavy

if TYPE_CHECKING:
    from torch import Tensor

    from captioner.vision.shards import ShardMember

ImageSource: TypeAlias = (
    "str | os.PathLike[str] | bytes | BinaryIO | Image.Image | np.ndarray[Any, Any] | Tensor "
    "| ShardMember"
)
"""Path, content, binary file, image, array (H, W, 3), tensor (3, H, W), or photo of a shard.

A grey array or tensor is (H, W)."""

MAXIMUM_PIXELS = 250_000_000
"""Default limit on width times height; telephones take up to 200 million."""

PHOTO_SUFFIXES: frozenset[str] = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".webp", ".avif"}
    | {".tif", ".tiff", ".bmp", ".dib", ".pcx", ".ppm", ".pgm", ".pbm", ".pnm", ".pfm"}
    | {".jp2", ".jpx", ".jpf", ".j2k", ".j2c", ".jpc", ".heic", ".heif", ".hif"}
)
"""Lower-case suffixes of the images taken from a folder."""

# What Synology, QNAP, macOS, Windows, Linux and photo managers leave in folders, in lower case.
_LEFTOVERS = re.compile(
    r"@eadir|@tmp|@recycle|@recently-snapshot|@sharesnap|#recycle|#snapshot|__macosx|lost\+found|"
    r"\$recycle\.bin|recycler|system volume information|found\.\d{3}|(eh)?thumbs\.db|desktop\.ini|"
    r"synophoto_(thumb|film).*|.+\.lrdata|\.(_.*|ds_store|appledouble|thumbnails|@__thumb|trash.*|"
    r"dtrash|picasaoriginals|spotlight-v100|fseventsd|synologyworkingdirectory|git)|"
    r".+_exiftool_tmp"
)

_RAW = (
    "3fr ari arw bay cap cr2 cr3 crw dcr dcs dng drf eip erf fff gpr iiq k25 kdc mdc mef mos mrw "
    "nef nrw orf ori pef ptx pxn r3d raf raw rw2 rwl rwz sr2 srf srw x3f"
)
_VIDEOS = (
    "3g2 3gp asf avi dv f4v flv hevc insv lrv m2t m2ts m2v m4v mjpeg mkv mod mov mp4 mpeg mpg mts "
    "mxf ogv qt rm tod ts vob webm wmv"
)
_PICTURES = "ai dds eps exr hdr icns ico jxl jxr psb psd svg svgz tga wdp xcf"
_KINDS = {"raw file": _RAW, "video": _VIDEOS, "other picture": _PICTURES}
_LEFT_OUT = {f".{suffix}": kind for kind, listed in _KINDS.items() for suffix in listed.split()}

# file:///photos, file:/photos, and file:///C:/photos, without the path.
_FILE_ADDRESS = re.compile(r"file:(//(localhost)?(?=/))?(/(?=[a-z]:/)|(?=/))", re.IGNORECASE)

IS_ADDRESS = "is an address; photos are not fetched, only read"
# Not all of Pillow's: EPS starts other programs, TGA has no signature.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "WEBP", "TIFF", "AVIF", "JPEG2000", "DIB", "PCX")

# The first bytes of a HEIC file (ISO/IEC 23008-12, 10).
_HEIF_SIGNATURE = re.compile(rb"....ftyp(?:hei|hev|mif1|msf1)", re.DOTALL)

# How gzip, compress, bzip2, xz, Zstandard, lz4, lzip, ZIP, 7-Zip and RAR begin.
_COMPRESSED = (
    *(b"\x1f\x8b", b"\x1f\x9d", b"BZh", b"\xfd7zXZ", b"(\xb5/\xfd", b"\x04\x22M\x18", b"LZIP"),
    *(b"PK\x03\x04", b"7z\xbc\xaf", b"Rar!"),
)

_CODESTREAM = b"\xff\x4f\xff\x51"  # How that of JPEG 2000 begins.

Report = Callable[[str], None]  # Takes a sentence about what cannot be read.

_PILLOWS_LIMIT = threading.Lock()

Permit = Callable[[int], AbstractContextManager[None]]
"""Waits until so many bytes may be held, and holds them."""


def load_image(
    source: ImageSource,
    maximum_pixels: int = MAXIMUM_PIXELS,
    *,
    name: str | None = None,
    sufficient_side: int | None = None,
    permit: Permit | None = None,
    decoding_seconds: float | None = None,
) -> Image.Image:
    """Load a photo upright, in RGB, as a new image without metadata.

    Puts transparent images on white, scales greys of more than 8 bits and floats to 8 bits (see
    `_scaled`), and takes the first frame of an animation (the current one of a Pillow image).

    Large or slow photos are decoded in another process, limited in time and memory: `DecodingPool`.

    maximum_pixels: limit on width times height, checked before decoding. name: for errors.
    sufficient_side: divide width and height by the largest integer that leaves the shorter side at
        least so many pixels, or the longer at most 16 times as many; JPEG is decoded to fewer,
        which is much faster. See `original_size`.
    decoding_seconds: limit for another process; 20 by default.
    permit: in a decoding process, waits until the budget allows the bytes that decoding takes.
    """
    name = photo_name(source) if name is None else name
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
            if permit is None and is_heavy(image, file, held, size):
                from captioner.vision.decoding_process import shared_pool

                content: Any = file
                if isinstance(source, (str, os.PathLike)):
                    content = os.path.abspath(os.fsdecode(source))
                options = {"maximum_pixels": maximum_pixels, "sufficient_side": sufficient_side}
                return shared_pool(os.getpid()).load(content, name, decoding_seconds, **options)
            hold = permit or BUDGET.hold
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
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise UserError(f"cannot read {name}: {reason or type(error).__name__}") from None


def original_size(photo: Image.Image) -> tuple[int, int]:
    """Width and height in its file of a photo from `load_image`, also after Pillow's `reduce`."""
    size: tuple[int, int] = photo.info.get(ORIGINAL_SIZE, photo.size)
    return size


def photo_name(source: Any, unnamed: str = "the image") -> str:
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
        yield _identify(file, str(path))


def _image_of_array(array: Any, name: str) -> Image.Image:
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


def _identify(
    file: BinaryIO, name: str, maximum_pixels: int = MAXIMUM_PIXELS
) -> ImageFile.ImageFile:
    """The image in `file`: reads the header, decodes nothing."""
    try:
        return _open(file, _FORMATS, maximum_pixels)
    except Image.DecompressionBombError as error:
        raise UserError(f"{name} is too large: {error}") from None
    except UnidentifiedImageError:
        file.seek(0)
        head = file.read(16)
        if head.startswith(_COMPRESSED):
            raise UserError(f"{name} is compressed; unpack it first") from None
        if not _HEIF_SIGNATURE.match(head):
            kinds = "JPEG, PNG, GIF, WebP, AVIF, HEIC, TIFF, JPEG 2000, BMP, PPM or PCX"
            fault = f"is not an image that can be read ({kinds}), or is damaged"
            raise UserError(f"{name} {fault if head else 'is empty'}") from None
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
    _, start, head = file.read(1 << 20).partition(_CODESTREAM)
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


def refuse(sentence: str) -> None:
    """The `Report` that raises `UserError` for the first problem."""
    raise UserError(sentence)


def is_leftover(path: str | os.PathLike[str]) -> bool:
    """Whether systems or photo managers name their own files and folders so."""
    return any(map(_LEFTOVERS.fullmatch, re.split(r"[/\\]", os.fspath(path).lower())))


def ignore(sentence: str) -> None:
    """The `Report` that keeps silent."""


def local_path(path: str) -> str:
    """The path in a file manager's address, as file:///photos/a%20dog.jpg; any other as it is."""
    address = None if os.path.lexists(path) else _FILE_ADDRESS.match(path)
    return unquote(path[address.end() :], errors="surrogateescape") if address else path


def photo_files(
    paths: Iterable[str | os.PathLike[str]], report: Report = refuse, note: Report = ignore
) -> list[Path]:
    """The image files that files, folders and patterns (`**/*.jpg`) name, in order.

    A folder stands for the photos in and below it, sorted, without hidden ones: files with a suffix
    in `PHOTO_SUFFIXES`, and those without one that begin as a photo does, but none of `_LEFTOVERS`.
    Other paths are returned, also those that do not exist. note: takes a sentence that counts the
    raw files, videos and other pictures left out.
    """
    images: list[Path] = []
    for path in paths:
        typed = os.fspath(path)
        matches = [typed]
        if not os.path.lexists(typed) and "\0" not in typed and glob.has_magic(typed):
            folder = typed  # The part that is there is no pattern, as in "Trip [2020]/*.jpg".
            while folder and not os.path.lexists(folder):
                folder = os.path.dirname(folder)
            pattern = glob.escape(folder) + typed[len(folder) :]
            names = sorted(glob.glob(pattern, recursive=True))
            matches = [match for match in names if is_leftover(typed) or not is_leftover(match)]
            if not matches:
                report(f"{typed} matches no file")
        for match in map(existing_path, map(Path, matches)):
            images += _photos_below(match, report, note) if os.path.isdir(match) else [match]
    return images


def _photos_below(folder: Path, report: Report, note: Report) -> list[Path]:
    def is_shown(name: str) -> bool:
        return not name.startswith(".") and not is_leftover(name)

    images: list[Path] = []
    errors: list[OSError] = []
    left_out: Counter[str] = Counter()
    for parent, folders, files in os.walk(folder, onerror=errors.append):
        folders[:] = filter(is_shown, folders)
        for inside in filter(Path.is_symlink, (Path(parent, name) for name in folders)):
            report(f"folder {inside} is a symbolic link and was not entered")
        for path in (Path(parent, name) for name in files if is_shown(name)):
            suffix = path.suffix.lower()
            if suffix in PHOTO_SUFFIXES:
                images.append(path)
            elif suffix in _LEFT_OUT:
                left_out[_LEFT_OUT[suffix]] += 1
            elif not suffix:
                with suppress(UserError, OSError), opened(path):  # It begins as a photo does.
                    images.append(path)
    for error in errors:
        report(f"cannot read folder {error.filename}: {error.strerror or error}")
    listed = ", ".join(counted(count, kind) for kind, count in sorted(left_out.items()))
    if not images and not errors:
        report(f"folder {folder} holds no images{f', but {listed}' if listed else ''}")
    elif listed:
        note(f"{folder}: left out: {listed}")
    return sorted(images)
