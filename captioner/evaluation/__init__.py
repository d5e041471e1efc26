"""Scores of captions, maps and translations. Here their options, which import no library."""

from __future__ import annotations

from pydantic import Field

from captioner.schema import Config

METRICS = ("BLEU", "ROUGE-L", "CIDEr-D", "word-precision", "METEOR", "SPICE")
"""All metrics of captions; the last two need Java."""

DEFAULT_METRICS = METRICS[:4]

CONFIDENCE = 0.95
"""The share of resampled scores that an interval holds by default."""

LEAST_PHOTOS = 8
"""Fewest photos of each kind that a confidence is fitted to."""


class CalibrationOptions(Config):
    """How to fit a confidence."""

    unsure_below: float = Field(0.25, ge=0, le=1, description="limit of a low confidence")
