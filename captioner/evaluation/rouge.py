"""ROUGE-L as the COCO captioning evaluation computes it.

Lin 2004, *ROUGE: A Package for Automatic Evaluation of Summaries*, section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from captioner.evaluation.corpus import Corpus
from captioner.evaluation.ngrams import FloatArray, IntArray, Tokens, changes, sorting

BETA = 1.2
"""Weight of recall over precision; the COCO evaluation's value."""

_BITS = 64
"""Words of a caption that fit into one machine integer."""


@dataclass(frozen=True)
class RougeScores:
    """ROUGE-L of a corpus, a fraction of one: the mean over the images, and each image's (I,)."""

    score: float
    per_image: FloatArray


def rouge_l(hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> RougeScores:
    """ROUGE-L of tokenised captions: an F-measure of the longest common subsequence.

    hypotheses: one caption an image. references: one or more captions an image, in the same order.
    The best precision and the best recall count, even of different references. An empty caption
    scores 1 against an empty reference and 0 against any other.

    Raises `UserError` as `check_corpus` does.
    """
    return corpus_rouge_l(Corpus.of(hypotheses, references))


def corpus_rouge_l(corpus: Corpus) -> RougeScores:
    """ROUGE-L of a corpus, as `rouge_l`."""
    common = _common_lengths(corpus)  # (S,), 0 for the captions themselves
    # The COCO evaluation reads an empty sentence as one empty word.
    own = corpus.lengths[corpus.firsts]  # (I,)
    common[(corpus.lengths == 0) & (own == 0)[corpus.image_of] & corpus.is_reference] = 1
    lengths = np.maximum(1, corpus.lengths)
    precision = np.maximum.reduceat(common, corpus.firsts) / np.maximum(1, own)  # (I,)
    recall = np.maximum.reduceat(common / lengths, corpus.firsts)  # (I,)
    below = recall + BETA**2 * precision
    per_image = np.divide(
        (1 + BETA**2) * precision * recall, below, out=np.zeros_like(below), where=below > 0
    )
    return RougeScores(float(per_image.mean()), per_image)


def longest_common_subsequence(first: Tokens, second: Tokens) -> int:
    """Length in words of the longest common subsequence.

    Bit-parallel: a row of the dynamic-programming table is one addition.
    Hyyrö 2004, *Bit-parallel LCS-length Computation Revisited*.
    """
    places: dict[str, int] = {}
    for index, word in enumerate(first):
        places[word] = places.get(word, 0) | 1 << index
    every = (1 << len(first)) - 1
    row = every  # a zero bit: the length grows at this word of `first`
    for word in second:
        matched = row & places.get(word, 0)
        row = ((row + matched) | (row - matched)) & every
    return len(first) - row.bit_count()


def _common_lengths(corpus: Corpus) -> IntArray:
    """`longest_common_subsequence` of each reference (S,) with its image's caption; else 0.

    Takes one word of all references at a time.
    """
    own = corpus.lengths[corpus.firsts][corpus.image_of]  # (S,)
    short = corpus.is_reference & (own <= _BITS)
    rows = np.flatnonzero(short)
    rows = rows[np.argsort(-corpus.lengths[rows], kind="stable")]  # the longest first
    lengths, firsts = corpus.lengths[rows], (np.cumsum(corpus.lengths) - corpus.lengths)[rows]
    places = _places_in_caption(corpus)
    # Shifts in two steps: NumPy does not define a shift by all 64 bits.
    every = ~(
        ~np.uint64(0)
        << (own[rows] // 2).astype(np.uint64)
        << (own[rows] - own[rows] // 2).astype(np.uint64)
    )
    row = every.copy()
    for index in range(int(lengths.max(initial=0))):
        active = int(np.searchsorted(-lengths, -index))  # sentences that long
        now = row[:active]
        matched = now & places[firsts[:active] + index]
        row[:active] = ((now + matched) | (now - matched)) & every[:active]
    common = np.zeros(len(corpus.sentences), dtype=np.int64)
    common[rows] = own[rows] - np.bitwise_count(row)
    for sentence in np.flatnonzero(corpus.is_reference & (own > _BITS)).tolist():
        caption = corpus.sentences[corpus.firsts[corpus.image_of[sentence]]]
        common[sentence] = longest_common_subsequence(caption, corpus.sentences[sentence])
    return common


def _places_in_caption(corpus: Corpus) -> NDArray[np.uint64]:
    """For every word (W,) its places in its image's caption, a bit each.

    Undefined for captions longer than 64 words.
    """
    sentence_of = np.repeat(np.arange(len(corpus.lengths)), corpus.lengths)  # (W,)
    image = corpus.image_of[sentence_of]
    index = np.arange(len(corpus.words)) - (np.cumsum(corpus.lengths) - corpus.lengths)[sentence_of]
    code = image * (int(corpus.words.max(initial=0)) + 1) + corpus.words
    order = sorting(code)
    bits = np.where(
        corpus.is_reference[sentence_of] | (index >= _BITS),
        np.uint64(0),
        np.uint64(1) << (index % _BITS).astype(np.uint64),
    )
    another = changes(code[order])
    places = np.zeros(len(code), dtype=np.uint64)
    if len(code):
        gathered = np.bitwise_or.reduceat(bits[order], np.flatnonzero(another))
        places[order] = gathered[np.cumsum(another) - 1]
    return places
