"""Word precision: the share of a caption's content words that a reference has.

Content words are those outside `FUNCTION_WORDS`. They are compared by stem, so that "dogs" matches
"dog": Porter's English stemmer in Snowball (https://snowballstem.org), through nltk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from captioner.evaluation.corpus import FloatArray, Tokens
from captioner.evaluation.metric import Metric
from captioner.text.languages import FUNCTION_WORDS

WITH_NONE = "captions with none"
"""The share of all captions without a content word that a reference has."""


def word_precision(captions: Sequence[Tokens], references: Sequence[Sequence[Tokens]]) -> Metric:
    """Score one tokenised caption an image against the image's references.

    The mean over captions that have content words, 0 where none has; and `WITH_NONE`.
    """
    shares = [content_share(*pair) for pair in zip(captions, references, strict=True)]
    per_image = np.array([np.nan if share is None else share for share in shares])  # (I,)
    has_content = ~np.isnan(per_image)
    share = np.where(has_content, per_image, 0.0)
    terms = np.stack((share, has_content, share == 0), axis=1).astype(np.float64)  # (I, 3)

    def of_totals(totals: FloatArray) -> FloatArray:
        precise, with_content, without_match = np.moveaxis(totals, -1, 0)
        precision = precise / np.maximum(1, with_content)
        return np.stack((precision, without_match / len(captions)), axis=-1)

    return Metric(("word-precision", WITH_NONE), per_image, terms, of_totals)


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
    # Imported here: nltk takes half a second to import.
    from nltk.stem.snowball import EnglishStemmer

    return str(EnglishStemmer().stem(word))
