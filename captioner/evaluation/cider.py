"""CIDEr-D: agreement with the references, weighted by how rare n-grams are.

Vedantam, Zitnick and Parikh 2015, *CIDEr: Consensus-based Image Description Evaluation*,
section 8 (CIDEr-D). The COCO evaluation calls this score "CIDEr", but clips counts and
penalises a difference in length, as CIDEr-D does.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import Self

from captioner.errors import UserError
from captioner.evaluation.corpus import (
    MAXIMUM_ORDER,
    Corpus,
    FloatArray,
    ImageNgrams,
    IntArray,
    Tokens,
    sum_by,
)
from captioner.evaluation.metric import Metric
from captioner.files import read_json, write_json
from captioner.schema import Config, from_mapping, to_mapping

SIGMA = 6.0
"""Width, in words, of the Gaussian penalty on a difference in length."""


class DocumentFrequency(Config):
    """The number of images in whose references each n-gram of one to four words occurs."""

    images: int = Field(ge=2, description="with one, every n-gram would weigh log(1) = 0")
    counts: dict[str, Annotated[int, Field(ge=1)]] = Field(
        description="by the n-gram's words, joined by a space; absent ones count as in one image"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for ngram, count in self.counts.items():
            if count > self.images:
                raise ValueError(f"counts of {ngram!r} is {count}, more than {self.images} images")
        return self

    @classmethod
    def from_references(cls, references: Sequence[Sequence[Tokens]]) -> DocumentFrequency:
        """Count over the tokenised references of each image.

        N-grams of one image, four of five, are left out: they count as such anyway.
        Raises `UserError` for fewer than two images.
        """
        if len(references) < 2:
            raise UserError(
                f"the document frequency of CIDEr-D needs at least 2 images, not {len(references)}"
            )
        corpus = Corpus.of([()] * len(references), references)
        counts: dict[str, int] = {}
        for ngrams in corpus.ngrams:
            texts = ngrams.counts.texts(corpus.sentences)
            found = zip(texts, _image_counts(ngrams).tolist(), strict=True)
            counts.update((ngram, count) for ngram, count in found if count > 1)
        return cls(images=len(references), counts=counts)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write as JSON."""
        write_json(path, to_mapping(self), indent=None)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> DocumentFrequency:
        """Read what `write` wrote. Raises `UserError`, naming the file, for anything else."""
        content = read_json(path, "document frequency")
        return from_mapping(cls, content, f"document frequency {path}")


def cider_d(corpus: Corpus, document_frequency: DocumentFrequency | None = None) -> Metric:
    """CIDEr-D of a corpus, from 0 to 10 as in the COCO evaluation.

    1.0 is what papers print as 100.

    document_frequency: by default counted over these references, as the COCO evaluation does.

    Raises `UserError` for a single image without a document frequency: each n-gram would occur in
    every image, and the score would be 0.
    """
    if document_frequency is None and corpus.images == 1:
        raise UserError(
            "CIDEr-D of a single image needs a stored document frequency: make one of references "
            "with captioner document-frequency and give it to captioner score as "
            "--document-frequency FILE, or leave CIDEr-D out of the metrics"
        )
    similarity = np.zeros(len(corpus.sentences))  # of each reference to its image's caption
    for ngrams in corpus.ngrams:
        if document_frequency is None:
            frequency = _image_counts(ngrams)
            images = corpus.images
        else:
            known = document_frequency.counts
            texts = ngrams.counts.texts(corpus.sentences)
            frequency = np.array([known.get(ngram, 1) for ngram in texts], dtype=np.int64)
            images = document_frequency.images
        rarity = np.log(images / np.maximum(1, frequency))  # (n-grams,), 0 if in every image
        similarity += _clipped_cosines(ngrams, rarity, corpus)

    # The COCO evaluation measures a caption by its number of bigrams.
    bigrams = np.maximum(0, corpus.lengths - 1)
    difference = bigrams - bigrams[corpus.firsts][corpus.image_of]  # (S,)
    similarity *= np.exp(-(difference**2) / (2 * SIGMA**2)) / MAXIMUM_ORDER
    sums = sum_by(corpus.image_of, similarity, corpus.images)  # (I,)
    references = np.bincount(corpus.image_of) - 1
    per_image = 10.0 * sums / references
    return Metric.mean("CIDEr-D", per_image)


def _image_counts(ngrams: ImageNgrams) -> IntArray:
    """The number of images in whose references each n-gram occurs."""
    occurring = ngrams.ngram[ngrams.in_reference > 0]
    return np.bincount(occurring, minlength=len(ngrams.counts.examples))


def _clipped_cosines(ngrams: ImageNgrams, rarity: FloatArray, corpus: Corpus) -> FloatArray:
    """Similarity (S,) of each reference to its image's caption in n-grams of one length.

    Vedantam et al. 2015, equation 4 without its Gaussian: the cosine of the two vectors of counts
    times rarity, where the caption's entries are cut to the reference's. 0 for captions.
    """
    sentences = len(corpus.sentences)
    counts = ngrams.counts
    weight = counts.count * rarity[counts.ngram]  # (E,)
    norm = np.sqrt(sum_by(counts.sentence, weight**2, sentences))  # (S,)
    caption_weight = (ngrams.in_caption * rarity[ngrams.ngram])[ngrams.pair]  # (E,)
    product = np.where(ngrams.of_reference, np.minimum(caption_weight, weight) * weight, 0.0)
    dot = sum_by(counts.sentence, product, sentences)  # (S,)
    norms = norm[corpus.firsts][corpus.image_of] * norm
    return np.asarray(np.divide(dot, norms, out=np.zeros_like(norms), where=norms > 0))
