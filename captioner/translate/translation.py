"""The translation of one sentence, with its alignment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captioner.errors import UserError
from captioner.render.alignment import AlignmentItem, save_heat_map
from captioner.text.vocabulary import Word


class Alignment(NamedTuple):
    """Attention of T target tokens, or words, over S source tokens or words.

    source: S, the last of which is "<end>". target: T. weights: (T, S), or (T, 0) for a model
    without attention.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Tensor


@dataclass(frozen=True)
class Translation:
    """A translation and its alignment.

    text: the translation. source_tokens: the S source tokens, the last of which is "<end>".
    tokens: the T target tokens, words or subwords.
    log_probability: of the translation with its end, in nats.
    token_log_probabilities: of each of the T tokens.
    score: ranks translations: the log-probability after length normalisation, plus the coverage
        penalty.
    alignment: (T, S), float32 on the CPU: row t is the attention at token t. (T, 0) for a model
        without attention.
    truncated: number of tokens cut from the end of a source that was too long.
    cut: whether the translation reached the maximum length although the model preferred going on.
    source_words, words: the words of the tokens, each with the number of its tokens; the source's
        include "<end>".
    alternatives: the other n-best translations, best first.

    Equality ignores alignments.
    """

    text: str
    source_tokens: tuple[str, ...] = field(repr=False)
    tokens: tuple[str, ...] = field(repr=False)
    log_probability: float
    token_log_probabilities: tuple[float, ...] = field(repr=False)
    alignment: Tensor = field(compare=False, repr=False)
    source_words: tuple[Word, ...] = field(repr=False)
    words: tuple[Word, ...] = field(repr=False)
    score: float = 0.0
    truncated: int = 0
    cut: bool = False
    alternatives: tuple[Translation, ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        return self.text

    def heat_map(self, path: str | os.PathLike[str]) -> None:
        """Draw the alignment of words as a heat map: a .png, .pdf or .svg."""
        source, target, weights = self.by_word()
        if target and not weights.shape[1]:
            raise UserError(f"cannot draw {path}: a model without attention has no alignment")
        save_heat_map(path, AlignmentItem(source, target, weights.numpy()))

    def by_token(self) -> Alignment:
        """Return the alignment with its tokens."""
        return Alignment(self.source_tokens, self.tokens, self.alignment)

    def by_word(self) -> Alignment:
        """Return the alignment (T', S') of T' target words and S' source words.

        Weights are summed over the tokens of a source word and averaged over those of a target
        word, which keeps the sums of rows.
        """
        weights, source = self.alignment, self.source_words
        if weights.shape[1] > 0:
            sums = weights.new_zeros(weights.shape[0], len(source))
            weights = sums.index_add_(1, _word_indices(source), weights)  # (T, S')
        sizes = weights.new_tensor([word.size for word in self.words]).unsqueeze(1)  # (T', 1)
        sums = weights.new_zeros(len(self.words), weights.shape[1])
        return Alignment(
            tuple(word.text for word in source),
            tuple(word.text for word in self.words),
            sums.index_add_(0, _word_indices(self.words), weights) / sizes,  # (T', S')
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the translation as JSON, with alignments of tokens and words to four decimals."""
        by_word = self.by_word()
        plain: dict[str, Any] = {
            "translation": self.text,
            "source_tokens": list(self.source_tokens),
            "tokens": list(self.tokens),
            "score": self.score,
            "log_probability": self.log_probability,
            "token_log_probabilities": list(self.token_log_probabilities),
            "alignment": _rounded(self.alignment),
            "source_words": list(by_word.source),
            "words": list(by_word.target),
            "word_alignment": _rounded(by_word.weights),
        }
        if self.truncated:
            plain["truncated"] = self.truncated
        if self.cut:
            plain["cut"] = True
        if self.alternatives:
            plain["alternatives"] = [other.as_dict() for other in self.alternatives]
        return plain


def _word_indices(words: Sequence[Word]) -> Tensor:
    """The index of each token's word: (T,), long."""
    sizes = torch.tensor([word.size for word in words], dtype=torch.long)  # (T',)
    return torch.repeat_interleave(torch.arange(len(words)), sizes)  # (T,)


def _rounded(weights: Tensor) -> list[list[float]]:
    return [[round(weight, 4) for weight in row] for row in weights.tolist()]
