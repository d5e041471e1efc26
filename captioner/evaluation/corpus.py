"""The corpus that every caption metric scores: tokenised captions with their references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from captioner.errors import UserError
from captioner.evaluation.ngrams import (
    IntArray,
    NgramCounts,
    Tokens,
    changes,
    count_ngrams,
    number_words,
    sentence_lengths,
)


@dataclass(frozen=True)
class Corpus:
    """Captions and references of I images in the form that metrics count in; made by `of`.

    sentences: the S sentences: of each image its caption and after it its references.
    image_of: (S,) the image of each. firsts: (I,) where each image's caption stands.
    words: (W,) all words of all sentences in one row, as numbers. lengths: (S,) in words.
    numbers: the number of each word.
    """

    sentences: list[Tokens]
    image_of: IntArray
    firsts: IntArray
    words: IntArray
    lengths: IntArray
    numbers: Mapping[str, int]

    @classmethod
    def of(cls, hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> Corpus:
        """The corpus of one caption an image and its references, in the same order.

        Raises `UserError` as `check_corpus` does.
        """
        check_corpus(hypotheses, references)
        sentences: list[Tokens] = []
        for hypothesis, candidates in zip(hypotheses, references, strict=True):
            sentences.append(hypothesis)
            sentences.extend(candidates)
        sizes = 1 + np.fromiter(map(len, references), dtype=np.int64)  # (I,)
        words, numbers = number_words(sentences)
        return cls(
            sentences,
            np.repeat(np.arange(len(sizes)), sizes),
            np.cumsum(sizes) - sizes,
            words,
            sentence_lengths(sentences),
            numbers,
        )

    def split(self) -> Corpus:
        """The same corpus with words that have white space in them, "22 3/4", split there.

        They are few as a rule: only the sentences that have one are numbered again.
        """
        spaced = [number for word, number in self.numbers.items() if len(word.split()) != 1]
        if not spaced:
            return self
        sentence_of = np.repeat(np.arange(len(self.lengths)), self.lengths)  # (W,)
        changed = np.unique(sentence_of[np.isin(self.words, spaced)]).tolist()
        sentences, lengths, numbers = self.sentences.copy(), self.lengths.copy(), {**self.numbers}
        starts = np.cumsum(self.lengths) - self.lengths  # (S,)
        pieces, done = [], 0
        for sentence in changed:
            words = " ".join(sentences[sentence]).split()
            pieces.append(self.words[done : starts[sentence]])
            found = [numbers.setdefault(word, len(numbers)) for word in words]
            pieces.append(np.array(found, dtype=np.int64))
            done = starts[sentence] + self.lengths[sentence]
            sentences[sentence], lengths[sentence] = words, len(words)
        row = np.concatenate([*pieces, self.words[done:]])
        return Corpus(sentences, self.image_of, self.firsts, row, lengths, numbers)

    @property
    def images(self) -> int:
        """How many images there are."""
        return len(self.firsts)

    @cached_property
    def is_reference(self) -> NDArray[np.bool_]:
        """Of each sentence (S,) whether it is a reference, not a caption to be scored."""
        references = np.ones(len(self.sentences), dtype=np.bool_)
        references[self.firsts] = False
        return references

    @cached_property
    def ngrams(self) -> list[ImageNgrams]:
        """The n-grams of one to four words, counted once for all metrics."""
        return [
            ImageNgrams.of(counts, self.image_of, self.is_reference)
            for counts in count_ngrams(self.words, self.lengths)
        ]


@dataclass(frozen=True)
class ImageNgrams:
    """The n-grams of one length, by image: P pairs of an image and an n-gram that occurs there.

    counts: sentence by sentence, E entries. of_reference: (E,). pair: (E,) the pair of each entry.
    ngram, image: (P,). in_caption: (P,) how often the image's caption has it, often 0.
    in_reference: (P,) how often that one of the image's references has it which has it most.
    """

    counts: NgramCounts
    of_reference: NDArray[np.bool_]
    pair: IntArray
    ngram: IntArray
    image: IntArray
    in_caption: IntArray
    in_reference: IntArray

    @classmethod
    def of(
        cls, counts: NgramCounts, image_of: IntArray, is_reference: NDArray[np.bool_]
    ) -> ImageNgrams:
        """Gather counts by image; image_of, is_reference: (S,) as in `Corpus`."""
        image = image_of[counts.sentence]  # (E,), together for each n-gram, as the sentences are
        another = changes(image) | changes(counts.ngram)
        start = np.flatnonzero(another)  # (P,), the caption's entry first where it has one
        of_reference = is_reference[counts.sentence]
        by_reference = np.where(of_reference, counts.count, 0)
        return cls(
            counts,
            of_reference,
            np.cumsum(another) - 1,
            counts.ngram[start],
            image[start],
            np.where(of_reference[start], 0, counts.count[start]),
            np.maximum.reduceat(by_reference, start) if len(start) else by_reference,
        )


def check_corpus(hypotheses: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> None:
    """Refuse what cannot be scored.

    hypotheses: one tokenised caption an image; it may be empty.
    references: for each image, in the same order, one or more tokenised captions.

    Raises `UserError` when there are no images, when the two differ in length, when an image has
    no reference, or when a caption is a string instead of a list of words.
    """
    if len(hypotheses) != len(references):
        raise UserError(
            f"there are {len(hypotheses)} captions to score but references for "
            f"{len(references)} images"
        )
    if len(hypotheses) == 0:
        raise UserError("there are no captions to score")
    for index, (hypothesis, candidates) in enumerate(zip(hypotheses, references, strict=True)):
        if isinstance(candidates, str) or len(candidates) == 0:
            raise UserError(f"image number {index} has no list of reference captions")
        # The type of most is told more quickly than what they are an instance of.
        if {type(hypothesis), *map(type, candidates)} != {list} and any(
            isinstance(tokens, str) for tokens in (hypothesis, *candidates)
        ):
            raise UserError(
                f"a caption of image number {index} is a string, not a list of words: "
                "tokenise it first"
            )
