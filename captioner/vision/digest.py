"""Digests by which photos are known again that were renamed, moved or copied."""

import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from itertools import chain

from captioner.errors import UserError
from captioner.files import read_bytes
from captioner.vision.formats import content_digest
from captioner.vision.images import load_image


def photo_digest(photo: str) -> str:
    """`content_digest` of a file."""
    with suppress(UserError):
        return content_digest(read_bytes(photo), photo, load_image)
    return ""


def equal_photos(photos: Iterable[str]) -> dict[str, str]:
    """The first photo whose file each later one is equal to. Only files of one size are read."""
    by_size: dict[int, list[str]] = {}
    for photo in filter(os.path.isfile, photos):
        by_size.setdefault(os.path.getsize(photo), []).append(photo)
    equal, firsts = dict[str, str](), dict[bytes, str]()
    for photo in chain.from_iterable(each for each in by_size.values() if len(each) > 1):
        with suppress(UserError):  # One that cannot be read is named where it is captioned.
            first = firsts.setdefault(sha256(read_bytes(photo)).digest(), photo)
            if first != photo:
                equal[photo] = first
    return equal
