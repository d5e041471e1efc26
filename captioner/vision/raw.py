"""Raw files of cameras, which are captioned by the previews in them; exiftool reads those."""

import json
import os
import subprocess
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from shutil import which

from captioner.errors import UserError
from captioner.files import RAW_SUFFIXES

_PREVIEWS = ("JpgFromRaw", "PreviewImage", "OtherImage")
# A segment of JPEG with an orientation alone (EXIF 2.32, 4.5.4).
_EXIF = b'\xff\xe1\0"Exif\0\0II*\0\b\0\0\0\1\0\x12\1\3\0\1\0\0\0%c\0\0\0\0\0\0\0'


def is_raw(path: str | os.PathLike[str]) -> bool:
    """Whether a path is of a raw file, by its suffix."""
    return Path(path).suffix.lower() in RAW_SUFFIXES


def raw_preview(path: str, name: str) -> bytes:
    """The largest preview in a raw file, upright as the raw file says. name: for errors."""
    tags = [f"-{tag}" for tag in (*_PREVIEWS, "IFD0:Orientation#")]
    command = ["exiftool", "-json", "-b", *tags, os.path.abspath(path)]
    found, previews = {}, [b""]
    with suppress(OSError, subprocess.TimeoutExpired, ValueError):
        (found,) = json.loads(subprocess.run(command, capture_output=True, timeout=60).stdout)
        encoded = (f"{found[tag]}".removeprefix("base64:") for tag in _PREVIEWS if tag in found)
        previews += map(b64decode, encoded)
    preview = max(previews, key=len)
    if not preview:
        reason = "exiftool is not installed" if which("exiftool") is None else "it has no preview"
        raise UserError(f"cannot read the raw file {name}: {reason}")
    orientation = found.get("Orientation")
    if preview.startswith(b"\xff\xd8") and b"Exif\0" not in preview[:64]:
        is_known = orientation in range(1, 9)
        preview = preview[:2] + _EXIF % (orientation if is_known else 1) + preview[2:]
    return preview
