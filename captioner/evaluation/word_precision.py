"""Word precision: the share of a caption's content words that a reference has.

Content words are those outside `FUNCTION_WORDS`. They are compared by stem, so that "dogs" matches
"dog": Porter's English stemmer in Snowball (https://snowballstem.org), through nltk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from captioner.evaluation.corpus import Corpus, FloatArray, Metric
from captioner.text.languages import FUNCTION_WORDS


def word_precision(corpus: Corpus) -> Metric:
    """Score each caption against the references of its image.

    The mean over captions that have content words, 0 where none has, in which a word that occurs
    twice counts twice; and the share of all captions without a content word that a reference has.
    """
    stems: dict[str, int] = {}
    stem_of = np.full(len(corpus.vocabulary), -1, dtype=np.int64)  # (V,), -1 for function words
    for number, word in enumerate(corpus.vocabulary):
        for stem in content_stems([word]):
            stem_of[number] = stems.setdefault(stem, len(stems))
    stem_at = stem_of[corpus.words]  # (W,)
    is_content = stem_at >= 0
    image = np.repeat(corpus.image_of, corpus.lengths)[is_content]
    of_reference = np.repeat(corpus.is_reference, corpus.lengths)[is_content]
    pair = image * np.int64(max(1, len(stems))) + stem_at[is_content]  # of an image and a stem
    own, known = pair[~of_reference], np.sort(pair[of_reference])
    found = np.searchsorted(known, own, "right") > np.searchsorted(known, own, "left")
    words = np.bincount(image[~of_reference], minlength=corpus.images)  # (I,) of the captions
    shares = np.bincount(image[~of_reference], found, corpus.images) / np.maximum(1, words)
    has_content = words > 0
    terms = np.stack((shares, has_content, shares == 0), axis=1).astype(np.float64)  # (I, 3)

    def of_totals(totals: FloatArray) -> FloatArray:
        precise, with_content, without_match = np.moveaxis(totals, -1, 0)
        precision = precise / np.maximum(1, with_content)
        return np.stack((precision, without_match / corpus.images), axis=-1)

    per_image = np.where(has_content, shares, np.nan)  # (I,)
    return Metric(("word-precision", "captions with none"), per_image, terms, of_totals)


def content_stems(words: Sequence[str]) -> list[str]:
    """The stems of the content words among tokenised words, in their order."""
    return [_stem(word) for word in words if word not in FUNCTION_WORDS]


@cache
def _stem(word: str) -> str:
    # Imported here: nltk takes half a second to import.
    from nltk.stem.snowball import EnglishStemmer

    return str(EnglishStemmer().stem(word))
