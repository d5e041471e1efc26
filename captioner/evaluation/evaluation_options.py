"""The options of evaluation; imports no torch."""

from __future__ import annotations

from pydantic import Field

from captioner.schema import Config

METRICS = ("BLEU", "ROUGE-L", "CIDEr-D", "word-precision", "METEOR", "SPICE")
"""All metrics; the last two need Java."""

DEFAULT_METRICS = METRICS[:4]

CONFIDENCE = 0.95
"""The share of resampled scores that an interval holds by default."""

LEAST_PHOTOS = 8
"""Fewest photos of each kind that a confidence is fitted to."""


class CurveOptions(Config):
    """How to measure deletion and insertion curves of content words.

    A photo costs about 2 (steps - 1) (W + 4) passes of the encoder for W words.
    """

    photos: int = Field(30, ge=1, description="blur the first N photos")
    steps: int = Field(10, ge=1, description="points of a curve after 0")


class CalibrationOptions(Config):
    """How to fit a confidence."""

    unsure_below: float = Field(0.25, ge=0, le=1, description="limit of a low confidence")
