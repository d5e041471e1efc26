"""Pairs of sentences as indices of tokens: what a translation model is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from captioner.data.parallel import SentencePair
from captioner.text.text_vocabulary import TextVocabulary, truncate
from captioner.text.token_batches import TranslationBatch, collate_sources
from captioner.text.vocabulary import Vocabulary

_NAMED = 10
"""Lines named of those that are cut."""


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

    truncated: the lines of those that were longer than the maximum, on either side, and lost their
        last tokens.
    """

    examples: list[PairExample]
    truncated: list[int]

    def report(self, maximum_length: int) -> str:
        """What is to be said of the pairs that were cut; empty where none was."""
        cut = self.truncated
        if not cut:
            return ""
        pairs = "pair" if len(cut) == 1 else "pairs"
        tokens = f"{maximum_length:,} tokens a side"
        return f"{len(cut):,} {pairs} of sentences cut to {tokens}: {_named(cut)}"


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
    cut: list[int] = []
    for pair in pairs:
        first, lost = truncate(source.split(pair.source), maximum_length)
        second, lost_too = truncate(target.split(pair.target), maximum_length)
        examples.append(PairExample(source.indices(first), target.indices(second)))
        if lost or lost_too:
            cut.append(pair.line)
    return PairExamples(examples, cut)


def report_cut_sources(
    pairs: Iterable[SentencePair], source: TextVocabulary, maximum_length: int
) -> str:
    """What is to be said of sources that a model reads in part; empty where it reads them whole.

    maximum_length: tokens that it reads. Raises `UserError` when it is below 1.
    """
    cut = [
        pair.line for pair in pairs if truncate(source.split(pair.source), maximum_length)[1] > 0
    ]
    if not cut:
        return ""
    sources = "source" if len(cut) == 1 else "sources"
    return f"{len(cut):,} {sources} cut to {maximum_length:,} tokens: {_named(cut)}"


def _named(lines: Sequence[int]) -> str:
    """The numbers of the first few of one or more lines, and how many more there are."""
    named = ", ".join(f"{line:,}" for line in lines[:_NAMED])
    more = f" and {len(lines) - _NAMED:,} more" if len(lines) > _NAMED else ""
    return f"{'line' if len(lines) == 1 else 'lines'} {named}{more}"


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
