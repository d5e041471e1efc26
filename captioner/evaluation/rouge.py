"""ROUGE-L as the COCO captioning evaluation computes it.

Lin 2004, *ROUGE: A Package for Automatic Evaluation of Summaries*, section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from captioner.evaluation.corpus import Tokens, check_corpus
from captioner.evaluation.ngrams import FloatArray

BETA = 1.2
"""How much more recall counts than precision: the value of the COCO evaluation."""


@dataclass(frozen=True)
class RougeScores:
    """ROUGE-L of a corpus, a fraction of one: the mean over the images, and each image's (I,)."""

    score: float
    per_image: FloatArray


def rouge_l(hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> RougeScores:
    """ROUGE-L of tokenised captions: an F-measure of the longest common subsequence.

    hypotheses: one caption an image. references: one or more captions an image, in the same order.
    The best precision and the best recall count, be they of different references. An empty caption
    scores 1 against an empty reference and 0 against any other.

    Raises `UserError` as `check_corpus` does.
    """
    check_corpus(hypotheses, references)
    per_image = np.array(
        [_score(*pair) for pair in zip(hypotheses, references, strict=True)], dtype=np.float64
    )
    return RougeScores(float(per_image.mean()), per_image)


def longest_common_subsequence(first: Tokens, second: Tokens) -> int:
    """Length in words of the longest sequence that both hold in order, gaps allowed.

    One bit stands for each word of `first`, so that a row of the usual table is one addition:
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


def _score(hypothesis: Tokens, references: Sequence[Tokens]) -> float:
    hypothesis = hypothesis or [""]  # the COCO evaluation reads an empty caption as one empty word
    references = [reference or [""] for reference in references]
    common = [longest_common_subsequence(hypothesis, reference) for reference in references]
    precision = max(common) / len(hypothesis)
    recall = max(
        length / len(reference) for length, reference in zip(common, references, strict=True)
    )
    if precision == 0 or recall == 0:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)
