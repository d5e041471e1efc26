"""ROUGE-L as the COCO captioning evaluation computes it.

Lin 2004, *ROUGE: A Package for Automatic Evaluation of Summaries*, section 3.1.
"""

from __future__ import annotations

import numpy as np

from captioner.evaluation.corpus import Corpus, IntArray, Metric

BETA = 1.2
"""Weight of recall over precision; the COCO evaluation's value."""

_BITS = 63
"""Longest caption whose words fit in the bits of one number."""

_CHUNK = 2048
"""Images whose captions are compared at once; their arrays fit in a processor's cache."""


def rouge_l(corpus: Corpus) -> Metric:
    """ROUGE-L: an F-measure of the longest common subsequence, 0 to 1.

    The best precision and the best recall count, even of different references. An empty caption
    scores 1 against an empty reference and 0 against any other.
    """
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
    return Metric.mean("ROUGE-L", per_image)


def _common_lengths(corpus: Corpus) -> IntArray:
    """Words of the longest common subsequence of each reference (S,) and its caption; else 0.

    Bit-parallel: a row of the dynamic-programming table is one addition, for all references of a
    chunk of images at once. Hyyrö 2004, *Bit-parallel LCS-length Computation Revisited*.
    """
    common = np.zeros(len(corpus.lengths), dtype=np.int64)
    own = corpus.lengths[corpus.firsts]  # (I,)
    short = np.flatnonzero(own <= _BITS)
    short = short[np.argsort(own[short], kind="stable")]  # Captions of like length together.
    sizes = np.diff(corpus.firsts, append=len(corpus.lengths)) - 1  # (I,) references
    for first in range(0, len(short), _CHUNK):
        images = short[first : first + _CHUNK]
        counts = sizes[images]
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        references = np.repeat(corpus.firsts[images] + 1, counts) + offsets  # (R,) sentences
        common[references] = _of_short(corpus, references)
    for image in np.flatnonzero(own > _BITS).tolist():
        caption = int(corpus.firsts[image])
        for reference in range(caption + 1, caption + 1 + int(sizes[image])):
            common[reference] = _of_long(corpus.sentence(caption), corpus.sentence(reference))
    return common


def _of_short(corpus: Corpus, references: IntArray) -> IntArray:
    """The common length (R,) of references and captions of at most `_BITS` words."""
    references_by_length = np.argsort(-corpus.lengths[references], kind="stable")
    ordered = references[references_by_length]  # (R,), the longest first
    captions = corpus.firsts[corpus.image_of[ordered]]
    lengths, own = corpus.lengths[ordered], corpus.lengths[captions]  # (R,)
    place = np.arange(own.max(initial=0))  # (C,)
    inside = place[:, None] < own  # (C, R)
    starts = corpus.starts[captions]
    words = np.where(inside, corpus.words[np.where(inside, starts + place[:, None], 0)], -1)
    every = (np.uint64(1) << own.astype(np.uint64)) - np.uint64(1)
    rows = every.copy()  # a zero bit: the length grows at this word of the caption
    for number in range(lengths.max(initial=0)):
        count = int(np.searchsorted(-lengths, -number))  # references longer than `number`
        word = corpus.words[corpus.starts[ordered[:count]] + number]
        places = np.zeros(count, dtype=np.uint64)  # where the caption has the word
        for bit, of_caption in enumerate(words[:, :count]):
            places |= (of_caption == word).astype(np.uint64) << np.uint64(bit)
        row = rows[:count]
        matched = row & places
        rows[:count] = ((row + matched) | (row - matched)) & every[:count]
    common = np.empty(len(references), dtype=np.int64)
    ones = np.unpackbits(rows.view(np.uint8).reshape(-1, 8), axis=1).sum(axis=1)
    common[references_by_length] = own - ones
    return common


def _of_long(caption: list[str], reference: list[str]) -> int:
    """The same of one caption of any length, in Python's unbounded numbers."""
    places: dict[str, int] = {}
    for index, word in enumerate(caption):
        places[word] = places.get(word, 0) | 1 << index
    every = row = (1 << len(caption)) - 1
    for word in reference:
        if word in places:
            matched = row & places[word]
            row = ((row + matched) | (row - matched)) & every
    return len(caption) - row.bit_count()
