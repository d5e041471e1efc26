"""The options of evaluation; imports no torch."""

from __future__ import annotations

from pydantic import Field

from captioner.schema import Config

METRICS = ("BLEU", "ROUGE-L", "CIDEr-D", "word-precision", "METEOR", "SPICE")
"""All metrics; the last two need Java."""

DEFAULT_METRICS = METRICS[:4]

LEAST_PHOTOS = 8
"""Fewest photos of each kind that a confidence is fitted to."""


class Resampling(Config):
    """How to resample images for intervals and comparisons."""

    resamples: int = Field(1000, ge=1, description="of the images, for intervals and comparisons")
    confidence: float = Field(0.95, gt=0, lt=1, description="the share of them in an interval")
    seed: int = Field(0, ge=0, description="the same seed gives the same figures")


class CurveOptions(Config):
    """How to measure deletion and insertion curves of content words.

    A photo costs 2 (steps - 1) (W + random_orders) passes of the encoder for W words.
    """

    photos: int = Field(30, ge=1, description="blur the first N photos")
    steps: int = Field(10, ge=1, description="points of a curve after 0")
    random_orders: int = Field(4, ge=1, description="own maps moved at random to compare")
    seed: int = Field(0, ge=0, description="of these and of the bootstrap")


class CalibrationOptions(Config):
    """How to fit a confidence."""

    training_photos: int = Field(
        2000, ge=LEAST_PHOTOS, description="training photos that define what is familiar"
    )
    unsure_below: float = Field(0.25, ge=0, le=1, description="limit of a low confidence")
    seed: int = Field(0, ge=0, description="of the halves")
