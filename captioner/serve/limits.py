"""Limits of a server."""

from __future__ import annotations

from pydantic import Field

from captioner.schema import Config


class Limits(Config):
    """How much a server accepts; of one request, unless the field says otherwise."""

    upload_bytes: int = Field(32 * 1024**2, gt=0, description="bytes of the content")
    pixels: int = Field(64_000_000, gt=0, description="width times height of a photo")
    photos: int = Field(16, gt=0, description="photos")
    beam: int = Field(20, gt=0, description="widest beam, and most captions of a photo")
    words: int = Field(100, gt=0, description="highest `maximum_length`")
    seconds: float = Field(60.0, gt=0, description="from the first byte to the answer")
    waiting: int = Field(
        256, gt=0, description="photos and sentences not yet answered, of all requests"
    )
    waiting_bytes: int = Field(
        512 * 1024**2, gt=0, description="bytes of the contents of all those requests"
    )
