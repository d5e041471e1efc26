"""The page of `captioner serve` and its HTTP interface.

A request passes the `guard` (who may ask, how much, how long) and a route, which has the `service`
read photos and caption them with those of other requests. Uploads stay in memory.
"""

from pydantic import Field

from captioner.schema import Config

UNDETERMINED = "und"  # The tag of a language that is not known (ISO 639-2).


class Limits(Config):
    """The most that a server accepts."""

    upload_bytes: int = Field(32 * 1024**2, gt=0, description="content of a request")
    pixels: int = Field(64_000_000, gt=0, description="pixels of a photo, width times height")
    decoding_seconds: float = Field(4.0, gt=0, description="time to decode a photo")
    photos: int = Field(16, gt=0, description="photos in a request")
    beam: int = Field(20, gt=0, description="beam size, and captions of a photo")
    words: int = Field(100, gt=0, description="`maximum_length` of a search")
    seconds: float = Field(60.0, gt=0, description="time from a request to its answer")
    waiting: int = Field(64, gt=0, description="unanswered requests; more are refused")
