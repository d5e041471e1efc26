"""CIDEr-D: agreement with the references, weighted by how rare n-grams are.

Vedantam, Zitnick and Parikh 2015, *CIDEr: Consensus-based Image Description Evaluation*,
section 8 (CIDEr-D). The COCO evaluation calls this score "CIDEr", but clips counts and
penalises a difference in length, as CIDEr-D does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from captioner.errors import UserError
from captioner.evaluation.corpus import MAXIMUM_ORDER, Corpus, Metric, Tokens

SIGMA = 6.0
"""Width, in words, of the Gaussian penalty on a difference in length."""


@dataclass(frozen=True)
class DocumentFrequency:
    """The number of images in whose references each n-gram of one to four words occurs.

    images: of the references; two or more, since with one every n-gram would weigh log(1) = 0.
    counts: by the n-gram's words, joined by a space; absent ones count as in one image.
    """

    images: int
    counts: Mapping[str, int]

    @classmethod
    def from_references(cls, references: Sequence[Sequence[Tokens]]) -> DocumentFrequency:
        """Count over the tokenised references of each image.

        N-grams of one image, four of five, are left out: they count as such anyway.
        """
        if len(references) < 2:
            raise UserError(
                f"the document frequency of CIDEr-D needs at least 2 images, not {len(references)}"
            )
        corpus = Corpus([()] * len(references), references).split
        counts: dict[str, int] = {}
        for ngrams in corpus.ngrams:
            pairs = zip(ngrams.texts(corpus), ngrams.images.tolist(), strict=True)
            counts.update((ngram, count) for ngram, count in pairs if count > 1)
        return cls(len(references), counts)


def cider_d(corpus: Corpus, document_frequency: DocumentFrequency | None = None) -> Metric:
    """CIDEr-D of a corpus, from 0 to 10 as in the COCO evaluation: 1.0 is printed as 100 in papers.

    document_frequency: by default counted over these references, as the COCO evaluation does.
    """
    if document_frequency is None and corpus.images == 1:
        raise UserError(
            "CIDEr-D of a single image needs the document frequency of more references: give "
            "captioner score a file of captions as --document-frequency FILE, or other --metrics"
        )
    corpus = corpus.split
    sentences, own = len(corpus.lengths), corpus.firsts[corpus.image_of]  # (S,)
    similarity = np.zeros(sentences)  # of each reference to its image's caption
    for ngrams in corpus.ngrams:
        if document_frequency is None:
            frequency, images = ngrams.images, corpus.images
        else:
            known, images = document_frequency.counts, document_frequency.images
            frequency = np.array([known.get(ngram, 1) for ngram in ngrams.texts(corpus)], int)
        rarity = np.log(images / np.maximum(1, frequency))  # (G,), 0 if in every image
        # Equation 4 without its Gaussian: the cosine of the two vectors of counts times rarity,
        # where the caption's entries are cut to the reference's. 0 for captions.
        rare = rarity[ngrams.ngram]  # (E,)
        weight = ngrams.number * rare
        norm = np.sqrt(np.bincount(ngrams.sentence, weight**2, sentences))  # (S,)
        product = np.minimum(ngrams.in_caption * rare, weight) * weight
        dot = np.bincount(ngrams.sentence, product, sentences) * corpus.is_reference
        norms = norm[own] * norm
        similarity += np.divide(dot, norms, out=np.zeros(sentences), where=norms > 0)

    # The COCO evaluation measures a caption by its number of bigrams.
    bigrams = np.maximum(0, corpus.lengths - 1)
    difference = (bigrams - bigrams[own]).astype(np.float64)  # (S,)
    similarity *= np.exp(-(difference**2) / (2 * SIGMA**2)) / MAXIMUM_ORDER
    sums = np.bincount(corpus.image_of, similarity, corpus.images)  # (I,)
    references = np.bincount(corpus.image_of) - 1
    return Metric.mean("CIDEr-D", 10.0 * sums / references)
