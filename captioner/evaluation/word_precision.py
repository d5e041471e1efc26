"""Word precision: the share of a caption's content words that a reference has.

Content words are those outside `FUNCTION_WORDS`. They are compared by stem, so that "dogs" matches
"dog": Porter's English stemmer in Snowball (https://snowballstem.org), through nltk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from captioner.evaluation.corpus import check_corpus
from captioner.evaluation.ngrams import FloatArray, Tokens
from captioner.text.function_words import FUNCTION_WORDS


@dataclass(frozen=True)
class WordPrecision:
    """Word precision of I captions.

    score: the mean over captions that have content words; 0 where none has.
    captions_with_none: the share of all captions without a content word that a reference has.
    per_image: (I,), NaN for a caption without content words.
    """

    score: float
    captions_with_none: float
    per_image: FloatArray

    @property
    def terms(self) -> FloatArray:
        """What each image adds to the sums (I, 3) that `word_precision_of_totals` takes."""
        has_content = ~np.isnan(self.per_image)
        share = np.where(has_content, self.per_image, 0.0)
        return np.stack((share, has_content, share == 0), axis=1).astype(np.float64)


def word_precision(
    captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]]
) -> WordPrecision:
    """Score one tokenised caption an image against the image's references.

    Raises `UserError` as `check_corpus` does.
    """
    check_corpus(captions, references)
    shares = [content_share(*pair) for pair in zip(captions, references, strict=True)]
    per_image = np.array([np.nan if share is None else share for share in shares])
    scores = WordPrecision(0.0, 0.0, per_image)
    score, none = word_precision_of_totals(scores.terms.sum(axis=0), len(captions)).tolist()
    return WordPrecision(score, none, per_image)


def word_precision_of_totals(totals: FloatArray, images: int) -> FloatArray:
    """Sums (..., 3) of `WordPrecision.terms` -> score and captions with none (..., 2)."""
    share, with_content, without_match = np.moveaxis(totals, -1, 0)
    score = share / np.maximum(1, with_content)
    return np.stack((score, without_match / images), axis=-1)


def content_share(caption: Tokens, references: Sequence[Tokens]) -> float | None:
    """The share of a caption's content words that any reference has; None if it has none.

    A word that occurs twice counts twice.
    """
    stems = content_stems(caption)
    if not stems:
        return None
    known = {stem for reference in references for stem in content_stems(reference)}
    return sum(stem in known for stem in stems) / len(stems)


def content_stems(words: Sequence[str]) -> list[str]:
    """The stems of the content words among tokenised words, in their order."""
    return [_stem(word) for word in words if word not in FUNCTION_WORDS]


@cache
def _stem(word: str) -> str:
    return str(_stemmer().stem(word))


@cache
def _stemmer():  # type: ignore[no-untyped-def]
    # Imported here: nltk takes half a second to import.
    from nltk.stem.snowball import SnowballStemmer

    return SnowballStemmer("english")
