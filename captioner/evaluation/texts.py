"""Captions with their references, as written and tokenised."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice

from captioner.data.records import ImageId
from captioner.errors import UserError
from captioner.evaluation.corpus import Corpus
from captioner.evaluation.ngrams import Tokens
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
        captions: Mapping[ImageId, str] | Sequence[str],
        references: Mapping[ImageId, Sequence[str]] | Sequence[Sequence[str]],
    ) -> CaptionTexts:
        """Match captions with references and tokenise each once.

        captions, references: both by image, or both sequences in the same order of images. By
            image, the captions' order counts, and further images may have references.

        Raises `UserError`, naming the image, for one without references and for a caption that is
        not a string; and if there are no images.
        """
        names, texts, candidates = _aligned(captions, references)
        if not names:
            raise UserError("there are no captions to score")
        for name, text, of_image in zip(names, texts, candidates, strict=True):
            listed = isinstance(of_image, Collection) and not isinstance(of_image, str)
            if not listed or len(of_image) == 0:
                raise UserError(f"image {name!r} has no list of reference captions")
            every = (text, *of_image)
            if not all(isinstance(one, str) for one in every):
                raise UserError(f"a caption of image {name!r} is not a string")
        words = map(tokenize_unsplit, [*texts, *chain.from_iterable(candidates)])
        return cls(
            names,
            texts,
            candidates,
            list(islice(words, len(texts))),
            [list(islice(words, len(of_image))) for of_image in candidates],
            len(references) - len(names),
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


def _aligned(
    captions: Mapping[ImageId, str] | Sequence[str],
    references: Mapping[ImageId, Sequence[str]] | Sequence[Sequence[str]],
) -> tuple[list[ImageId], list[str], list[Sequence[str]]]:
    """The names of the images, their captions and their references, in one order."""
    if isinstance(captions, Mapping) and isinstance(references, Mapping):
        for image in captions:
            if image not in references:
                raise UserError(f"image {image!r} has a caption but no references")
        return list(captions), list(captions.values()), [references[image] for image in captions]
    if isinstance(captions, Mapping) or isinstance(references, Mapping):
        raise UserError("captions and references are not both by image or both in order")
    if len(captions) != len(references):
        raise UserError(
            f"there are {len(captions)} captions but references for {len(references)} images"
        )
    return list(range(len(captions))), list(captions), list(references)
