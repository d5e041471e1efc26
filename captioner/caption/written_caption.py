"""A caption with its log-probabilities and attention maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

_CLITICS = frozenset({"'s", "'m", "'d", "'ll", "'re", "'ve", "n't"})
"""Tokens of the Penn Treebank written without a space before them."""

NOT_FAMILIAR = "not sure: unlike the photos this model was trained on"


def sentence(words: Sequence[str]) -> str:
    """Join words: `a man 's dog does n't run` is "a man's dog doesn't run".

    The inverse of `captioner.text.tokenize`.
    """
    text = ""
    attached = True  # A clitic at the start, or after another one, keeps its space.
    for word in words:
        attach = word in _CLITICS and not attached
        text += word if attach or not text else f" {word}"
        attached = attach
    return text


@dataclass(frozen=True)
class Caption:
    """A caption with an attention map for every word.

    text: the sentence of the T words; 's and n't are attached.
    log_probability: natural, including the end.
    word_log_probabilities: T.
    attention: (T, rows, columns), float32 on the CPU, each map summing to one; 14x14 for VGG at
        224x224.
    region: left, top, right, bottom of what the model saw, in pixels of the photo; the maps cover
        it. None for captions of annotation vectors.
    alternatives: the other captions (n-best), best first.
    score: log-probability after length normalisation, by which a search ranks; None without search.
    confidence: expected share of the caption's content words that people use for the photo; see
        `captioner.caption.confidence`. None without calibration or search.
    sure: whether the confidence is at least the model's limit. None without confidence.
    familiar: whether the photo is like the training photos. None without confidence.

    Equality ignores the maps.
    """

    text: str
    words: tuple[str, ...]
    log_probability: float
    word_log_probabilities: tuple[float, ...]
    attention: Tensor = field(compare=False)
    region: tuple[float, float, float, float] | None = None
    alternatives: tuple[Caption, ...] = field(default=())
    score: float | None = None
    confidence: float | None = None
    sure: bool | None = None
    familiar: bool | None = None

    @property
    def doubt(self) -> str:
        """A note on low confidence or an unfamiliar photo; empty otherwise."""
        if self.familiar is False:
            return NOT_FAMILIAR
        return "not sure" if self.sure is False else ""

    def as_dict(self) -> dict[str, Any]:
        """The plain form for JSON, without the maps."""
        plain: dict[str, Any] = {
            "caption": self.text,
            "words": list(self.words),
            "log_probability": self.log_probability,
            "word_log_probabilities": list(self.word_log_probabilities),
        }
        if self.score is not None:
            plain["score"] = self.score
        if self.confidence is not None:
            plain["confidence"] = self.confidence
            plain["sure"] = self.sure
            plain["familiar"] = self.familiar
        if self.alternatives:
            plain["alternatives"] = [other.as_dict() for other in self.alternatives]
        return plain
