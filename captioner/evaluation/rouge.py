"""ROUGE-L as the COCO captioning evaluation computes it.

Lin 2004, *ROUGE: A Package for Automatic Evaluation of Summaries*, section 3.1.
"""

from __future__ import annotations

import numpy as np

from captioner.evaluation.corpus import Corpus, IntArray, Metric

BETA = 1.2
"""Weight of recall over precision; the COCO evaluation's value."""

_CHUNK = 4096
"""References that are compared at once; their arrays fit in a processor's cache."""


def rouge_l(corpus: Corpus) -> Metric:
    """ROUGE-L: an F-measure of the longest common subsequence, 0 to 1.

    The best precision and the best recall count, even of different references. An empty caption
    scores 1 against an empty reference and 0 against any other.
    """
    captions = corpus.firsts[corpus.image_of]  # (S,)
    lengths, own = corpus.lengths, corpus.lengths[captions]  # (S,)
    common = np.zeros(len(lengths), dtype=np.int64)  # 0 for the captions themselves
    references = np.flatnonzero(corpus.is_reference)
    # Pairs of like lengths together.
    references = references[np.lexsort((lengths[references], own[references]))]
    for first in range(0, len(references), _CHUNK):
        part = references[first : first + _CHUNK]
        common[part] = _common_lengths(_padded(corpus, captions[part]), _padded(corpus, part, -2))
    # The COCO evaluation reads an empty sentence as one empty word.
    common[(lengths == 0) & (own == 0) & corpus.is_reference] = 1
    precision = np.maximum.reduceat(common / np.maximum(1, own), corpus.firsts)  # (I,)
    recall = np.maximum.reduceat(common / np.maximum(1, lengths), corpus.firsts)
    below = recall + BETA**2 * precision
    above = (1 + BETA**2) * precision * recall
    per_image = np.divide(above, below, out=np.zeros_like(below), where=below > 0)
    return Metric.mean("ROUGE-L", per_image)


def _padded(corpus: Corpus, sentences: IntArray, padding: int = -1) -> IntArray:
    """The words (C, R) of R sentences, the longest of which has C."""
    lengths, starts = corpus.lengths[sentences], corpus.starts[sentences]  # (R,)
    place = np.arange(lengths.max(initial=0))[:, None]  # (C, 1)
    inside = place < lengths  # (C, R)
    return np.where(inside, corpus.words[np.where(inside, starts + place, 0)], padding)


def _common_lengths(captions: IntArray, references: IntArray) -> IntArray:
    """Words (R,) of the longest common subsequences of columns (C, R) and (N, R)."""
    row = np.zeros((len(captions) + 1, captions.shape[1]), dtype=np.int32)
    for word in references:  # A row of the table of dynamic programming.
        row[1:] = np.maximum(row[1:], row[:-1] + (captions == word))
        reach = 1
        while reach < len(row):  # The largest up to each place; faster than `maximum.accumulate`.
            row[reach:] = np.maximum(row[reach:], row[:-reach])
            reach *= 2
    return np.asarray(row[-1])
