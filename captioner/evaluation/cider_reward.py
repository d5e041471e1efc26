"""CIDEr-D as a reward in training: scores many captions against fixed references.

Rennie et al. 2017, *Self-Critical Sequence Training for Image Captioning*, section 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from captioner.errors import UserError
from captioner.evaluation.cider import SIGMA
from captioner.evaluation.ngrams import (
    MAXIMUM_ORDER,
    FloatArray,
    IntArray,
    changes,
    count_ngrams,
    sum_by,
)

Sentence = Sequence[int]
"""A caption as numbers of words, from 0."""


class CiderReward:
    """CIDEr-D of captions against fixed references.

    Counts once what `captioner.evaluation.cider.cider_d` counts in every call: the document
    frequency over the references of all images, and the references' n-grams. Scores a batch of 250
    captions in milliseconds.

    Images are numbered in the order of their references; n-grams of one to four words share one
    numbering. Entries are pairs of a reference and an n-gram in it, by image, then by n-gram. COCO
    has many millions of them, so an entry keeps three int32 numbers only; weights are computed on
    demand.
    """

    def __init__(self, references: Sequence[Sequence[Sentence]]) -> None:
        """Count over the references of I images.

        Raises `UserError` for fewer than two images and for an image without a reference.
        """
        if len(references) < 2:
            raise UserError(
                f"the document frequency of CIDEr-D needs at least 2 images, not {len(references)}"
            )
        for index, candidates in enumerate(references):
            if len(candidates) == 0:
                raise UserError(f"image number {index} has no list of reference captions")
        sentences = list(chain.from_iterable(references))
        counts = np.fromiter(map(len, references), dtype=np.int64)  # (I,)
        image_of = np.repeat(np.arange(len(counts)), counts)  # (S,)
        self.references = counts
        self._first = np.cumsum(counts) - counts  # (I,), the first of each image's references
        self._most = int(counts.max())
        self._common = float(np.log(len(references)))  # weight of an n-gram in one image, or none
        self._lengths = _lengths(sentences)  # (S,)
        words = _row(sentences)
        self._kinds = int(words.max(initial=0)) + 1
        self._codes: list[IntArray] = []  # the n-grams of each length, sorted
        self._offsets: list[int] = []  # first number of each length
        norms = np.zeros((MAXIMUM_ORDER, len(sentences)))  # of the weights, by length of the n-gram
        # Of each length, the entries' references, n-grams and counts.
        sentence_of: list[NDArray[np.int32]] = []
        ngram_of: list[NDArray[np.int32]] = []
        count_of: list[NDArray[np.int32]] = []
        rarities: list[FloatArray] = []
        number_at = np.zeros(len(words), dtype=np.int64)
        offset = 0
        counted = count_ngrams(words, self._lengths)
        while counted:
            found = counted.pop(0)  # Frees the memory of each length after use.
            starts = found.examples
            codes = number_at[starts] * self._kinds + words[starts + found.order - 1]
            self._codes.append(codes)
            self._offsets.append(offset)
            number_at = self._next_numbers(number_at, words, found.order)
            image = image_of[found.sentence]
            documents = changes(image) | changes(found.ngram)
            frequency = np.bincount(found.ngram[documents], minlength=len(codes))
            rarity = self._common - np.log(frequency)  # (n-grams,), 0 if in every image
            weight = found.count * rarity[found.ngram]  # (E,)
            norms[found.order - 1] = np.sqrt(sum_by(found.sentence, weight**2, len(sentences)))
            sentence_of.append(found.sentence.astype(np.int32))
            ngram_of.append((found.ngram + offset).astype(np.int32))
            count_of.append(found.count.astype(np.int32))
            rarities.append(rarity)
            offset += len(codes)
        # Of every n-gram, and one more in case no reference has a word.
        self._rarity = np.concatenate([*rarities, np.zeros(1)])
        self._norms = norms  # (4, S)
        belongs_to = image_of.astype(np.int32)[np.concatenate(sentence_of)]  # (E,), an image
        of_image = np.bincount(belongs_to, minlength=len(counts))
        self._start = np.concatenate([[0], np.cumsum(of_image)])  # (I + 1,), into entries
        places = np.argsort(belongs_to, kind="stable")  # (E,); by n-gram within an image
        del belongs_to
        self._sentence = np.concatenate(sentence_of)[places]
        self._ngram = np.concatenate(ngram_of)[places]
        self._count = np.concatenate(count_of)[places]

    def __call__(self, images: IntArray, captions: Sequence[Sentence]) -> FloatArray:
        """CIDEr-D (N,) of N captions, from 0 to 10.

        images: (N,) the image of each caption; an image may repeat. captions: words numbered as in
        the references; a number unknown there is a word that no reference has.
        """
        if len(captions) == 0:
            return np.zeros(0)
        lengths = _lengths(captions)  # (N,)
        caption, ngram, weight, direction = self._entries(captions, lengths)
        # The reference entries of the images asked for, in one row and by (image, n-gram).
        asked, local = np.unique(images, return_inverse=True)  # (A,), (N,)
        rows = _ranges(self._start[asked], self._start[asked + 1])  # (R,)
        sizes = self._start[asked + 1] - self._start[asked]
        span = len(self._rarity)
        keys = np.repeat(np.arange(len(asked)), sizes) * span + self._ngram[rows]  # (R,), rising
        wanted = local[caption] * span + ngram  # (E,)
        begin, stop = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, side="right")
        pairs = np.repeat(np.arange(len(wanted)), stop - begin)  # (P,), into the captions' entries
        matched = rows[_ranges(begin, stop)]  # (P,), into the references' entries
        said = self._sentence[matched].astype(np.int64)  # (P,), by which reference
        own = self._count[matched] * self._rarity[ngram[pairs]]  # (P,), the reference's weight
        order = np.searchsorted(self._offsets, ngram[pairs], side="right")  # (P,), of 1 to 4
        norm = self._norms[order - 1, said]  # (P,)
        product = (
            np.minimum(weight[pairs], own)
            / np.maximum(weight[pairs], np.finfo(np.float64).tiny)
            * direction[pairs]
            * np.divide(own, norm, out=np.zeros_like(own), where=norm > 0)
        )
        cell = caption[pairs] * self._most + said - self._first[images[caption[pairs]]]
        similarity = sum_by(cell, product, len(captions) * self._most).reshape(-1, self._most)
        place = np.arange(self._most)  # (most,)
        there = place < self.references[images][:, None]  # (N, most)
        reference = np.where(there, self._first[images][:, None] + place, 0)
        # The COCO evaluation measures a caption by its number of bigrams.
        bigrams = np.maximum(0, lengths - 1)[:, None] - np.maximum(0, self._lengths[reference] - 1)
        similarity *= np.exp(-(bigrams**2) / (2 * SIGMA**2)) * there
        scores = 10.0 / MAXIMUM_ORDER * similarity.sum(axis=1) / self.references[images]
        return np.asarray(scores, dtype=np.float64)

    def _entries(
        self, captions: Sequence[Sentence], lengths: IntArray
    ) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """The captions' n-grams that references have: caption, n-gram, weight and its share.

        The share is the weight divided by the norm of all weights of the caption in n-grams of
        that length, with those that no reference has.
        """
        words = _row(captions)
        words = np.where(words < self._kinds, words, self._kinds + words)
        parts: list[tuple[IntArray, IntArray, FloatArray, FloatArray]] = []
        number_at = np.zeros(len(words), dtype=np.int64)
        for found in count_ngrams(words, lengths):
            number_at = self._next_numbers(number_at, words, found.order)
            ngram: IntArray = number_at[found.examples][found.ngram]  # (E,), -1: in no reference
            known = ngram >= 0
            ngram = ngram + self._offsets[found.order - 1]
            rarity = np.where(known, self._rarity[np.where(known, ngram, 0)], self._common)
            weight = np.asarray(found.count * rarity, dtype=np.float64)
            norm = np.sqrt(sum_by(found.sentence, weight**2, len(captions)))
            norm = norm[found.sentence]
            share = np.zeros(len(weight))
            np.divide(weight, norm, out=share, where=norm > 0)
            parts.append((found.sentence[known], ngram[known], weight[known], share[known]))
        return (
            np.concatenate([part[0] for part in parts]),
            np.concatenate([part[1] for part in parts]),
            np.concatenate([part[2] for part in parts]),
            np.concatenate([part[3] for part in parts]),
        )

    def _next_numbers(self, number_at: IntArray, words: IntArray, order: int) -> IntArray:
        """Numbers (W,) of the n-grams that begin at each word, from those of one word less.

        -1 if no reference has it; arbitrary for n-grams that run over a sentence's end.
        """
        codes = self._codes[order - 1]
        ahead = np.full(len(words), self._kinds, dtype=np.int64)
        ahead[: max(0, len(words) - order + 1)] = words[order - 1 :]
        known = (number_at >= 0) & (ahead < self._kinds)
        wanted = np.where(known, number_at * self._kinds + ahead, -1)
        place = np.searchsorted(codes, wanted)
        place = np.minimum(place, max(0, len(codes) - 1))
        known &= codes[place] == wanted if len(codes) else False
        return np.where(known, place, -1)


def _row(sentences: Sequence[Sentence]) -> IntArray:
    """All words of all sentences in one row, (W,)."""
    return np.fromiter(chain.from_iterable(sentences), dtype=np.int64)


def _lengths(sentences: Sequence[Sentence]) -> IntArray:
    """Number of words of each sentence, (S,)."""
    return np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))


def _ranges(starts: IntArray, stops: IntArray) -> IntArray:
    """The numbers from each start up to its stop, in one row."""
    sizes = stops - starts
    ends = np.cumsum(sizes)
    shifts = np.repeat(starts - ends + sizes, sizes)
    return np.asarray(np.arange(len(shifts)) + shifts)
