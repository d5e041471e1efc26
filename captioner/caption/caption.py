"""What a captioner says of one photo."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Caption:
    """A caption and, for every word, where the model looked when it wrote it.

    text: the words joined. words: T words.
    log_probability: natural logarithm of the caption's probability, its ending included.
    word_log_probabilities: T numbers, one a word.
    attention: (T, rows, columns), float32 on the CPU, each map summing to one; 14x14 for VGG at
        224x224. Map t is the one word t was emitted with.
    region: left, top, right, bottom, in pixels of the photo: what the model saw of it, and what
        the maps cover. None when annotation vectors were captioned, not a photo.
    alternatives: the other captions asked for (n-best), best first; empty otherwise.

    Two captions are equal when all but their maps is.
    """

    text: str
    words: tuple[str, ...]
    log_probability: float
    word_log_probabilities: tuple[float, ...]
    attention: Tensor = field(compare=False)
    region: tuple[float, float, float, float] | None = None
    alternatives: tuple[Caption, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """The plain form for JSON, without the maps."""
        plain: dict[str, Any] = {
            "caption": self.text,
            "words": list(self.words),
            "log_probability": self.log_probability,
            "word_log_probabilities": list(self.word_log_probabilities),
        }
        if self.alternatives:
            plain["alternatives"] = [other.as_dict() for other in self.alternatives]
        return plain
