"""BLEU as the COCO captioning evaluation computes it.

Papineni et al. 2002, *BLEU: a Method for Automatic Evaluation of Machine Translation*, section 2;
Chen et al. 2015, *Microsoft COCO Captions: Data Collection and Evaluation Server*, section 3.2.
"""

from __future__ import annotations

import numpy as np

from captioner.evaluation.corpus import MAXIMUM_ORDER, Corpus, FloatArray, IntArray, Metric

# The COCO evaluation adds these to avoid dividing by zero and a score of exactly 0; part of its
# definition.
_ADDED_ABOVE = 1e-15
_ADDED_BELOW = 1e-9


def bleu(corpus: Corpus) -> Metric:
    """BLEU-1 to BLEU-4 of a corpus, fractions of one, brevity penalty included.

    terms: (I, 10): by n-gram length the n-grams of the caption that a reference has, clipped, and
        its n-grams; then words of the caption and of its closest reference.
    details: the brevity penalty, 1 if the captions are longer; words of both, all together.
    """
    corpus = corpus.split
    matches = [ngrams.matches for ngrams in corpus.ngrams]  # (I,) of each length
    lengths = corpus.lengths[corpus.firsts]  # (I,)
    number = np.maximum(0, lengths[:, None] - np.arange(MAXIMUM_ORDER))  # (I, 4)
    columns = (*matches, number, lengths, _closest_lengths(corpus))
    terms = np.column_stack(columns).astype(np.float64)  # (I, 10)
    totals = terms.sum(axis=0)
    details = {
        "brevity_penalty": float(_brevity_penalty(totals)),
        "hypothesis_length": int(totals[8]),
        "reference_length": int(totals[9]),
    }
    names = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4")
    return Metric(names, bleu_of_totals(terms), terms, bleu_of_totals, details)


def bleu_of_totals(totals: FloatArray) -> FloatArray:
    """BLEU-1 to BLEU-4, (..., 4), of the sums (..., 10) of `bleu`'s terms over images."""
    precisions = (totals[..., :4] + _ADDED_ABOVE) / (totals[..., 4:8] + _ADDED_BELOW)  # (..., 4)
    means = np.cumprod(precisions, axis=-1) ** (1.0 / np.arange(1, MAXIMUM_ORDER + 1))
    return np.asarray(means * _brevity_penalty(totals)[..., None])


def _brevity_penalty(totals: FloatArray) -> FloatArray:
    """Of sums (..., 10): (...)."""
    ratio = (totals[..., 8] + _ADDED_ABOVE) / (totals[..., 9] + _ADDED_BELOW)
    return np.asarray(np.where(ratio < 1, np.exp(1 - 1 / np.minimum(ratio, 1)), 1.0))


def _closest_lengths(corpus: Corpus) -> IntArray:
    """Of each image (I,) the reference length closest to the caption's, the shorter in a tie."""
    lengths = corpus.lengths.astype(np.int64)
    distance = np.abs(lengths - lengths[corpus.firsts][corpus.image_of])  # (S,)
    base = int(lengths.max()) + 1
    far = base * base  # excludes the caption itself
    rank = np.where(corpus.is_reference, distance * base + lengths, far)
    return np.minimum.reduceat(rank, corpus.firsts) % base
