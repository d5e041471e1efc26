"""What a captioner says of one photo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

_CLITICS = frozenset({"'s", "'m", "'d", "'ll", "'re", "'ve", "n't"})
"""Words of the Penn Treebank that are written without a space before them."""

NOT_FAMILIAR = "not sure: unlike the photos this model was trained on"


def sentence(words: Sequence[str]) -> str:
    """Words as they are written: `a man 's dog does n't run` is "a man's dog doesn't run".

    `captioner.text.tokenize` undoes it.
    """
    text = ""
    attached = True  # What begins a sentence, or follows such a word, stays by itself.
    for word in words:
        attach = word in _CLITICS and not attached
        text += word if attach or not text else f" {word}"
        attached = attach
    return text


@dataclass(frozen=True)
class Caption:
    """A caption and, for every word, where the model looked when it wrote it.

    text: the words as a sentence; 's and n't are attached. words: T words.
    log_probability: natural logarithm of the caption's probability, its ending included.
    word_log_probabilities: T numbers, one a word.
    attention: (T, rows, columns), float32 on the CPU, each map summing to one; 14x14 for VGG at
        224x224. Map t is the one word t was emitted with.
    region: left, top, right, bottom, in pixels of the photo: what the model saw of it, and what
        the maps cover. None when annotation vectors were captioned, not a photo.
    alternatives: the other captions asked for (n-best), best first; empty otherwise.
    score: what captions of a search are ranked by: the log-probability after length normalisation.
        None for a caption that no search found.
    confidence: the share of the caption's content words that are expected among the words with
        which people describe the photo, from 0 to 1; see `captioner.caption.confidence`. None for
        a model that was not calibrated, and for a caption that no search found.
    sure: whether the confidence is at least the model's limit. None without confidence.
    familiar: whether the photo is like those that the model was trained on. None likewise.

    Two captions are equal when all but their maps is.
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
        """Words for a low confidence or an unfamiliar photo; empty otherwise."""
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
