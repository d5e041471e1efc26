"""Sentence pairs as token indices, for training a translation model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from captioner.data.parallel import SentencePair
from captioner.text.token_batches import TranslationBatch, collate_sources, decoder_inputs
from captioner.text.vocabulary import TextVocabulary, truncate

_MOST_LISTED = 10
"""Cut lines that a report lists."""


@dataclass(frozen=True)
class PairExample:
    """The token indices of a pair, without start and end."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Steps of the longer side: its tokens, and one for start or end."""
        return max(len(self.source), len(self.target)) + 1


class PairExamples(NamedTuple):
    """Encoded pairs, in order. truncated: the lines of those cut on either side."""

    examples: list[PairExample]
    truncated: list[int]


def encode_pairs(
    pairs: Iterable[SentencePair],
    source: TextVocabulary,
    target: TextVocabulary,
    maximum_length: int,
) -> PairExamples:
    """Encode sentence pairs.

    maximum_length: longer sides are cut to so many tokens. Raises `UserError` if it is below 1.
    """
    examples: list[PairExample] = []
    cut: list[int] = []
    for pair in pairs:
        source_tokens, source_cut = truncate(source.split(pair.source), maximum_length)
        target_tokens, target_cut = truncate(target.split(pair.target), maximum_length)
        examples.append(PairExample(source.indices(source_tokens), target.indices(target_tokens)))
        if source_cut or target_cut:
            cut.append(pair.line)
    return PairExamples(examples, cut)


def report_cut(what: str, lines: Sequence[int], limit: str) -> str:
    """Such as "2 sources cut to 9 tokens: lines 1, 2", of one line or more."""
    listed = ", ".join(f"{line:,}" for line in lines[:_MOST_LISTED])
    more = f" and {len(lines) - _MOST_LISTED:,} more" if len(lines) > _MOST_LISTED else ""
    several = "s" * (len(lines) > 1)
    return f"{len(lines):,} {what}{several} cut to {limit}: line{several} {listed}{more}"


def collate_pairs(examples: Sequence[PairExample]) -> TranslationBatch:
    """Batch pairs, one or more: adds start and end, pads each side to its longest."""
    source, source_mask = collate_sources([example.source for example in examples])
    targets, mask = collate_sources([example.target for example in examples])  # (B, T)
    return TranslationBatch(source, source_mask, decoder_inputs(targets, mask), targets, mask)
