"""Captions with their references, as written and tokenised."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice

from captioner.data.example import ImageId
from captioner.errors import UserError
from captioner.evaluation.corpus import Corpus, Tokens
from captioner.text.tokenizer import tokenize_unsplit


@dataclass(frozen=True)
class CaptionTexts:
    """A caption and one or more references of each of I images, in one order; made by `of`.

    images: (I,) their names. captions, references: as written.
    words, reference_words: the same, tokenised; a word may have white space in it ("22 3/4"), and
        is one word to ROUGE-L and several to the other metrics.
    references_without_caption: the number of further images with references.
    """

    images: Sequence[ImageId]
    captions: Sequence[str]
    references: Sequence[Sequence[str]]
    words: Sequence[Tokens]
    reference_words: Sequence[Sequence[Tokens]]
    references_without_caption: int = 0

    @classmethod
    def of(
        cls,
        captions: Sequence[str],
        references: Sequence[Sequence[str]],
        images: Sequence[ImageId] | None = None,
        references_without_caption: int = 0,
    ) -> CaptionTexts:
        """Tokenise captions and their references once.

        captions, references, images: in the same order. images: names, by default numbers from 0.

        Raises `UserError`, naming the image, for one without references and for a caption that is
        not a string; and if there are no images.
        """
        if len(captions) != len(references):
            raise UserError(
                f"there are {len(captions)} captions but references for {len(references)} images"
            )
        if len(captions) == 0:
            raise UserError("there are no captions to score")
        names = range(len(captions)) if images is None else images
        for name, text, of_image in zip(names, captions, references, strict=True):
            listed = isinstance(of_image, Collection) and not isinstance(of_image, str)
            if not listed or len(of_image) == 0:
                raise UserError(f"image {name!r} has no list of reference captions")
            every = (text, *of_image)
            if not all(isinstance(one, str) for one in every):
                raise UserError(f"a caption of image {name!r} is not a string")
        words = map(tokenize_unsplit, [*captions, *chain.from_iterable(references)])
        return cls(
            names,
            captions,
            references,
            list(islice(words, len(captions))),
            [list(islice(words, len(of_image))) for of_image in references],
            references_without_caption,
        )

    def with_captions(self, captions: Sequence[str]) -> CaptionTexts:
        """Other captions (I,) of the same images; reuses the tokenised references."""
        return replace(self, captions=captions, words=list(map(tokenize_unsplit, captions)))

    @cached_property
    def unsplit_corpus(self) -> Corpus:
        """The form that metrics count in."""
        return Corpus.of(self.words, self.reference_words)

    @cached_property
    def corpus(self) -> Corpus:
        """The same with words split at white space; all metrics but ROUGE-L take this."""
        return self.unsplit_corpus.split()
