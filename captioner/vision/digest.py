"""Digests by which photos are known again that were renamed, moved or copied."""

from contextlib import suppress

from captioner.errors import UserError
from captioner.files import read_bytes
from captioner.vision.formats import coded_digest
from captioner.vision.images import load_photo
from captioner.vision.pixels import DIGEST


def photo_digest(photo: str) -> str:
    """The digest of a photo without its metadata, which `--embed` does not change.

    See `coded_digest` and `upright_rgb`; "" if the photo cannot be read.
    """
    with suppress(UserError):
        content = read_bytes(photo)
        if digest := coded_digest(content, photo):
            return digest
        reduced = load_photo(content, photo, sufficient_side=64, has_digest=True)
        return str(reduced.info[DIGEST])
    return ""
