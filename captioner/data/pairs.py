"""Pairs of sentences as indices of tokens: what a translation model is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from captioner.data.parallel import SentencePair
from captioner.text.text_vocabulary import TextVocabulary, truncated
from captioner.text.vocabulary import Vocabulary
from captioner.translate.batch import TranslationBatch, collate_sources


@dataclass(frozen=True)
class PairExample:
    """One pair: the indices of the tokens of either side, without start and end."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Steps of the longer side: its tokens, and one for start or end."""
        return max(len(self.source), len(self.target)) + 1


@dataclass(frozen=True)
class PairExamples:
    """Encoded pairs, in order.

    truncated: how many were longer than the maximum, on either side, and lost their last tokens.
    """

    examples: list[PairExample]
    truncated: int

    def report(self, maximum_length: int) -> str:
        """What is to be said of the pairs that were cut; empty where none was."""
        if not self.truncated:
            return ""
        pairs = "pair" if self.truncated == 1 else "pairs"
        return f"{self.truncated:,} {pairs} of sentences cut to {maximum_length:,} tokens a side"


def encode_pairs(
    pairs: Iterable[SentencePair],
    source: TextVocabulary,
    target: TextVocabulary,
    maximum_length: int,
) -> PairExamples:
    """Turn pairs of sentences into examples.

    maximum_length: tokens; a longer side is cut to its first so many, and counted. Raises
    `UserError` when it is below 1.
    """
    examples: list[PairExample] = []
    cut = 0
    for pair in pairs:
        first, lost = truncated(source.split(pair.source), maximum_length)
        second, lost_too = truncated(target.split(pair.target), maximum_length)
        examples.append(PairExample(source.indices(first), target.indices(second)))
        cut += lost + lost_too > 0
    return PairExamples(examples, cut)


def collate_pairs(examples: Sequence[PairExample]) -> TranslationBatch:
    """Put pairs into one batch: start and end added, each side padded to its longest.

    Raises `ValueError` without examples.
    """
    source, source_mask = collate_sources([example.source for example in examples])
    targets, mask = collate_sources([example.target for example in examples])  # (B, T)
    # The same tokens, one step later: start is fed in for the first, and the end is not fed in.
    inputs = torch.full_like(targets, Vocabulary.pad)  # (B, T)
    inputs[:, 0] = Vocabulary.start
    inputs[:, 1:] = torch.where(mask[:, 1:], targets[:, :-1], inputs[:, 1:])
    return TranslationBatch(source, source_mask, inputs, targets, mask)
