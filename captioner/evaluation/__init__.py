"""Scores of captions, maps and translations. Here what they share, which imports no library."""

from abc import ABC, abstractmethod
from typing import Any

METRICS = ("BLEU", "ROUGE-L", "CIDEr-D", "word-precision", "METEOR", "SPICE")
"""All metrics of captions; the last two need Java."""

DEFAULT_METRICS = METRICS[:4]
CONFIDENCE = 0.95  # The share of resampled scores that an interval holds by default.


Figures = dict[str, Any]  # By name, for tables and JSON.


class Scores(ABC):
    """Scores for people and for files."""

    @abstractmethod
    def table(self) -> str:
        """Lines of text."""

    def to_dict(self) -> Figures:
        """Everything by name, for JSON."""
        return dict(vars(self))

    def rows(self) -> list[Figures]:
        """A row an image or word, for CSV; none if the scores are of all together only."""
        return []
