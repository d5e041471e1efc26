"""Descriptions that cameras and programs write, which are nobody's words."""

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import cache
from pathlib import Path

from captioner.files import read_text


def by_people(texts: Iterable[str], is_exif: bool = False, make: str = "") -> list[str]:
    """The texts without those that cameras and programs write; in doubt, a person did.

    is_exif: in EXIF, its copy in XMP, or a comment; elsewhere, a single word is a person's.
    make: of the camera, in EXIF.
    """
    anywhere, in_exif, codes, makes = _camera_patterns()

    def is_by_camera(text: str) -> bool:
        is_code = " " not in text and codes.match(text) and (not make or makes.match(make))
        is_by_one = in_exif.match(text) or is_code or (text.isupper() and "CAMERA" in text)
        return bool(anywhere.match(text) or (is_exif and is_by_one))

    return [text for text in texts if text and not is_by_camera(text)]


@cache
def _camera_patterns() -> list[re.Pattern[str]]:
    """Those of each paragraph of the list, below its heading; codes stand there as they are."""
    content = read_text(Path(__file__).with_name("camera_descriptions.txt"))
    paragraphs = (paragraph.split("\n")[1:] for paragraph in content.strip().split("\n\n"))
    expressions = ("|".join(map(translate, patterns)) for patterns in paragraphs)
    return [*map(re.compile, expressions, (re.IGNORECASE, re.IGNORECASE, 0, re.IGNORECASE))]
