"""The names of the metrics; imports no torch."""

METRICS = ("BLEU", "ROUGE-L", "CIDEr-D", "word-precision", "METEOR", "SPICE")
"""All metrics; the last two need Java."""

DEFAULT_METRICS = METRICS[:4]
