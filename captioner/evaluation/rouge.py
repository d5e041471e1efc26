"""ROUGE-L as the COCO captioning evaluation computes it.

Lin 2004, *ROUGE: A Package for Automatic Evaluation of Summaries*, section 3.1.
"""

from __future__ import annotations

import numpy as np

from captioner.evaluation.corpus import Corpus, IntArray
from captioner.evaluation.metric import Metric

BETA = 1.2
"""Weight of recall over precision; the COCO evaluation's value."""


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

    Bit-parallel: a row of the dynamic-programming table is one addition.
    Hyyrö 2004, *Bit-parallel LCS-length Computation Revisited*.
    """
    common = np.zeros(len(corpus.sentences), dtype=np.int64)
    ends = [*corpus.firsts[1:].tolist(), len(corpus.sentences)]
    for first, end in zip(corpus.firsts.tolist(), ends, strict=True):
        caption = corpus.sentences[first]
        places: dict[str, int] = {}
        for index, word in enumerate(caption):
            places[word] = places.get(word, 0) | 1 << index
        every = (1 << len(caption)) - 1
        for number in range(first + 1, end):
            row = every  # a zero bit: the length grows at this word of the caption
            for word in corpus.sentences[number]:
                if word in places:
                    matched = row & places[word]
                    row = ((row + matched) | (row - matched)) & every
            common[number] = len(caption) - row.bit_count()
    return common
