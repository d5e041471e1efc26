"""BLEU as the COCO captioning evaluation computes it.

Papineni et al. 2002, *BLEU: a Method for Automatic Evaluation of Machine Translation*, section 2;
Chen et al. 2015, *Microsoft COCO Captions: Data Collection and Evaluation Server*, section 3.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from captioner.evaluation.corpus import Tokens, check_corpus
from captioner.evaluation.ngrams import (
    MAXIMUM_ORDER,
    FloatArray,
    IntArray,
    NgramCounts,
    count_ngrams,
    sentence_lengths,
)

# The COCO evaluation adds these two, so that nothing is divided by zero and that a sentence without
# a match scores almost nothing instead of nothing. They are part of the metric's definition there.
_ADDED_ABOVE = 1e-15
_ADDED_BELOW = 1e-9


@dataclass(frozen=True)
class BleuScores:
    """BLEU of a corpus.

    scores: BLEU-1 to BLEU-4, fractions of one, brevity penalty included.
    precisions: the clipped precision of the n-grams of each length, fractions of one.
    brevity_penalty: 1 where the captions are longer than their references, below 1 otherwise.
    hypothesis_length, reference_length: words in all; of each image the reference whose length is
        closest to the caption's counts, the shorter one where two are equally close.
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
    """What BLEU needs to know of each of I images; rows may be picked, repeated and left out.

    matches: (I, 4) n-grams of the caption that its references have too, clipped.
    ngrams: (I, 4) n-grams of the caption.
    hypothesis_length, reference_length: (I,) words, as in `BleuScores`.
    """

    matches: IntArray
    ngrams: IntArray
    hypothesis_length: IntArray
    reference_length: IntArray

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
    return bleu_statistics(hypotheses, references).scores()


def bleu_statistics(
    hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]
) -> BleuStatistics:
    """The counts that BLEU is computed from, image by image; arguments and errors as in `bleu`."""
    check_corpus(hypotheses, references)
    flat = [tokens for candidates in references for tokens in candidates]
    per_image = np.array([len(candidates) for candidates in references], dtype=np.int64)
    images = len(hypotheses)
    # Sentence i < I is the caption of image i; the references follow.
    image_of = np.concatenate([np.arange(images), np.repeat(np.arange(images), per_image)])
    matches = np.stack(
        [
            _clipped_matches(counts, image_of, images)
            for counts in count_ngrams([*hypotheses, *flat])
        ],
        axis=1,
    )  # (I, 4)
    lengths = sentence_lengths(hypotheses)  # (I,)
    ngrams = np.maximum(0, lengths[:, None] - np.arange(MAXIMUM_ORDER))  # (I, 4)
    closest = _closest_lengths(lengths, sentence_lengths(flat), per_image)
    return BleuStatistics(matches, ngrams, lengths, closest)


def _clipped_matches(counts: NgramCounts, image_of: IntArray, images: int) -> IntArray:
    """Matches (I,) of n-grams of one length: each counts at most as often as in any reference."""
    kinds = max(1, counts.number_of_ngrams)
    of_reference = counts.sentence >= images
    pair = image_of[counts.sentence] * kinds + counts.ngram
    pairs, group = np.unique(pair[of_reference], return_inverse=True)
    most = np.zeros(len(pairs) + 1, dtype=np.int64)  # the last one: no reference has it
    np.maximum.at(most, group, counts.count[of_reference])
    wanted = pair[~of_reference]
    place = np.searchsorted(pairs, wanted)
    place = np.where(np.append(pairs, -1)[place] == wanted, place, len(pairs))
    clipped = np.minimum(counts.count[~of_reference], most[place])
    matches = np.zeros(images, dtype=np.int64)
    np.add.at(matches, counts.sentence[~of_reference], clipped)
    return matches


def _closest_lengths(lengths: IntArray, references: IntArray, per_image: IntArray) -> IntArray:
    """Of each image (I,) the reference length closest to the caption's, the shorter in a tie."""
    distance = np.abs(references - np.repeat(lengths, per_image))
    base = int(references.max()) + 1
    firsts = np.cumsum(per_image) - per_image
    return np.minimum.reduceat(distance * base + references, firsts) % base


def _bleu(
    matches: IntArray, ngrams: IntArray, length: IntArray | np.int64, reference: IntArray | np.int64
) -> FloatArray:
    """BLEU (..., 4) out of counts (..., 4) and lengths (...)."""
    precisions = (matches + _ADDED_ABOVE) / (ngrams + _ADDED_BELOW)  # (..., 4)
    means = np.cumprod(precisions, axis=-1) ** (1.0 / np.arange(1, MAXIMUM_ORDER + 1))
    return np.asarray(means * _brevity_penalty(length, reference)[..., None])


def _brevity_penalty(length: IntArray | np.int64, reference: IntArray | np.int64) -> FloatArray:
    ratio = (length + _ADDED_ABOVE) / (reference + _ADDED_BELOW)
    return np.asarray(np.where(ratio < 1, np.exp(1 - 1 / np.minimum(ratio, 1)), 1.0))
