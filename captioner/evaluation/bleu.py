"""BLEU as the COCO captioning evaluation computes it.

Papineni et al. 2002, *BLEU: a Method for Automatic Evaluation of Machine Translation*, section 2;
Chen et al. 2015, *Microsoft COCO Captions: Data Collection and Evaluation Server*, section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from captioner.evaluation.corpus import Corpus
from captioner.evaluation.ngrams import MAXIMUM_ORDER, FloatArray, IntArray, Tokens, sum_by

# The COCO evaluation adds these to avoid dividing by zero and a score of exactly 0; part of its
# definition.
_ADDED_ABOVE = 1e-15
_ADDED_BELOW = 1e-9

_Counts: TypeAlias = IntArray | FloatArray | np.int64


@dataclass(frozen=True)
class BleuScores:
    """BLEU of a corpus.

    scores: BLEU-1 to BLEU-4, fractions of one, brevity penalty included.
    precisions: the clipped precision of the n-grams of each length, fractions of one.
    brevity_penalty: 1 if the captions are longer than their references, below 1 otherwise.
    hypothesis_length, reference_length: words in all; of an image's references, the one closest in
        length to the caption counts, the shorter in a tie.
    per_image: (I, 4) BLEU-1 to BLEU-4 of each image on its own.
    """

    scores: tuple[float, ...]
    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int
    per_image: FloatArray


@dataclass(frozen=True)
class BleuStatistics:
    """The counts behind BLEU of I images; rows may be picked, repeated and left out.

    matches: (I, 4) n-grams of the caption that a reference has, clipped.
    ngrams: (I, 4) n-grams of the caption.
    hypothesis_length, reference_length: (I,) words, as in `BleuScores`.
    """

    matches: IntArray
    ngrams: IntArray
    hypothesis_length: IntArray
    reference_length: IntArray

    def terms(self) -> IntArray:
        """What each image adds to the corpus, (I, 10): the four fields, side by side."""
        lengths = (self.hypothesis_length, self.reference_length)
        return np.column_stack((self.matches, self.ngrams, *lengths))

    def scores(self) -> BleuScores:
        """BLEU of these images as one corpus."""
        matches, ngrams = self.matches.sum(axis=0), self.ngrams.sum(axis=0)  # (4,), (4,)
        length, reference = self.hypothesis_length.sum(), self.reference_length.sum()
        corpus = _bleu(matches, ngrams, length, reference)
        return BleuScores(
            scores=tuple(corpus.tolist()),
            precisions=tuple((matches / np.maximum(ngrams, 1)).tolist()),
            brevity_penalty=float(_brevity_penalty(length, reference)),
            hypothesis_length=int(length),
            reference_length=int(reference),
            per_image=_bleu(
                self.matches, self.ngrams, self.hypothesis_length, self.reference_length
            ),
        )


def bleu(hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> BleuScores:
    """BLEU-1 to BLEU-4 of tokenised captions.

    hypotheses: one caption an image. references: one or more captions an image, in the same order.

    Raises `UserError` as `check_corpus` does.
    """
    return bleu_statistics(Corpus.of(hypotheses, references)).scores()


def bleu_statistics(corpus: Corpus) -> BleuStatistics:
    """Count the matches and lengths behind BLEU, image by image."""
    matches = np.stack(
        [
            # An n-gram counts at most as often as any one reference has it.
            sum_by(ngrams.image, np.minimum(ngrams.in_caption, ngrams.in_reference), corpus.images)
            for ngrams in corpus.ngrams
        ],
        axis=1,
    )  # (I, 4)
    lengths = corpus.lengths[corpus.firsts]  # (I,)
    number = np.maximum(0, lengths[:, None] - np.arange(MAXIMUM_ORDER))  # (I, 4)
    return BleuStatistics(matches.astype(np.int64), number, lengths, _closest_lengths(corpus))


def bleu_of_totals(totals: IntArray | FloatArray) -> FloatArray:
    """BLEU-1 to BLEU-4, (..., 4), of the sums (..., 10) of `BleuStatistics.terms` over images."""
    return _bleu(totals[..., :4], totals[..., 4:8], totals[..., 8], totals[..., 9])


def _closest_lengths(corpus: Corpus) -> IntArray:
    """Of each image (I,) the reference length closest to the caption's, the shorter in a tie."""
    own = corpus.lengths[corpus.firsts][corpus.image_of]  # (S,)
    distance = np.abs(corpus.lengths - own)
    base = int(corpus.lengths.max()) + 1
    far = base * base  # excludes the caption itself
    rank = np.where(corpus.is_reference, distance * base + corpus.lengths, far)
    return np.minimum.reduceat(rank, corpus.firsts) % base


def _bleu(matches: _Counts, ngrams: _Counts, length: _Counts, reference: _Counts) -> FloatArray:
    """BLEU (..., 4) out of counts (..., 4) and lengths (...)."""
    precisions = (matches + _ADDED_ABOVE) / (ngrams + _ADDED_BELOW)  # (..., 4)
    means = np.cumprod(precisions, axis=-1) ** (1.0 / np.arange(1, MAXIMUM_ORDER + 1))
    return np.asarray(means * _brevity_penalty(length, reference)[..., None])


def _brevity_penalty(length: _Counts, reference: _Counts) -> FloatArray:
    ratio = (length + _ADDED_ABOVE) / (reference + _ADDED_BELOW)
    return np.asarray(np.where(ratio < 1, np.exp(1 - 1 / np.minimum(ratio, 1)), 1.0))
