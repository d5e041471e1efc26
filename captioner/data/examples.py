"""Captions as word indices, for training a decoder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from captioner.data.records import CaptionedImage
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class CaptionExample:
    """One caption of one image.

    row: the image's index, also in the feature store. tokens: word indices, without start and end.
    """

    row: int
    tokens: list[int]


@dataclass(frozen=True)
class CaptionExamples:
    """The captions of a list of images.

    examples: one a caption, image by image. truncated: how many were cut to the maximum length.
    """

    examples: list[CaptionExample]
    truncated: int


def caption_words(image: CaptionedImage) -> list[list[str]]:
    """The words of each caption of an image: the source's own, else from `tokenize`."""
    if image.tokens is not None:
        return [list(words) for words in image.tokens]
    return [tokenize(caption) for caption in image.captions]


def encode_captions(
    words: Iterable[Sequence[Sequence[str]]],
    vocabulary: Vocabulary,
    maximum_length: int | None = None,
) -> CaptionExamples:
    """Encode the captions of images.

    words: of every image, in feature store order, from `caption_words`.
    maximum_length: longer captions are cut to so many words; None: none is cut.
    """
    examples: list[CaptionExample] = []
    truncated = 0
    for row, captions in enumerate(words):
        for caption in captions:
            tokens = vocabulary.encode(caption)
            examples.append(CaptionExample(row, tokens[:maximum_length]))
            truncated += len(tokens) > len(examples[-1].tokens)
    return CaptionExamples(examples, truncated)
