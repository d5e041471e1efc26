"""Scores of captions, maps and translations. Here their options, which import no library."""

METRICS = ("BLEU", "ROUGE-L", "CIDEr-D", "word-precision", "METEOR", "SPICE")
"""All metrics of captions; the last two need Java."""

DEFAULT_METRICS = METRICS[:4]
CONFIDENCE = 0.95  # The share of resampled scores that an interval holds by default.
