"""What a translator says of one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captioner.text.text_vocabulary import Word


class Alignment(NamedTuple):
    """Where the model looked for each of T tokens, or words, written, among S that were read.

    source: S, the last of which is "<end>". target: T. weights: (T, S), or (T, 0) for a model
    without attention.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Tensor


@dataclass(frozen=True)
class Translation:
    """A translation and, for every token, where the model looked when it wrote it.

    text: as it is written. source_tokens: S tokens that were read, the last of which is "<end>".
    tokens: T tokens that were written, in words or pieces.
    log_probability: natural logarithm of the translation's probability, its ending included.
    token_log_probabilities: T numbers, one a token.
    score: what translations are ranked by: the log-probability after length normalisation, and
        the coverage penalty added. Equal to the log-probability where there is neither.
    alignment: (T, S), float32 on the CPU: row t is where the model looked as it wrote token t.
        (T, 0) for a model without attention.
    truncated: how many tokens at the end of the source were not read, as it was too long.
    cut: whether it was ended at the longest length of the search, where the model held going on
        for likelier than ending.
    source_words, words: the words that the tokens make, each with the number of its tokens; of the
        source, with "<end>".
    alternatives: the other translations asked for (n-best), best first; empty otherwise.

    Two translations are equal when all but their alignments is.
    """

    text: str
    source_tokens: tuple[str, ...]
    tokens: tuple[str, ...]
    log_probability: float
    token_log_probabilities: tuple[float, ...]
    alignment: Tensor = field(compare=False)
    source_words: tuple[Word, ...]
    words: tuple[Word, ...]
    score: float = 0.0
    truncated: int = 0
    cut: bool = False
    alternatives: tuple[Translation, ...] = ()

    def by_token(self) -> Alignment:
        """The alignment of tokens, with what it is of."""
        return Alignment(self.source_tokens, self.tokens, self.alignment)

    def by_word(self) -> Alignment:
        """The alignment (T', S') of T' words written and S' words read.

        What all tokens of a word read were given, added up, on average over the tokens of a word
        written; rows sum to what those of `alignment` do.
        """
        weights, read = self.alignment, self.source_words
        if weights.shape[1] > 0:
            added = weights.new_zeros(weights.shape[0], len(read))
            weights = added.index_add_(1, _numbers(read), weights)  # (T, S')
        sizes = weights.new_tensor([word.size for word in self.words]).unsqueeze(1)  # (T', 1)
        added = weights.new_zeros(len(self.words), weights.shape[1])
        return Alignment(
            tuple(word.text for word in read),
            tuple(word.text for word in self.words),
            added.index_add_(0, _numbers(self.words), weights) / sizes,  # (T', S')
        )

    def as_dict(self) -> dict[str, Any]:
        """The plain form for JSON, alignments of tokens and of words with it, to four places."""
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


def _numbers(words: Sequence[Word]) -> Tensor:
    """Of which word each token is: (T,), long."""
    sizes = torch.tensor([word.size for word in words], dtype=torch.long)  # (T',)
    return torch.repeat_interleave(torch.arange(len(words)), sizes)  # (T,)


def _rounded(weights: Tensor) -> list[list[float]]:
    return [[round(weight, 4) for weight in row] for row in weights.tolist()]
