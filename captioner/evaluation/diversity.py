"""How varied captions are, and how many repeat captions of training.

A captioner that always writes the commonest caption can score well against references. Devlin et
al. 2015, *Language Models for Image Captioning: The Quirks and What Works*, section 4 (captions
that are unique, and captions seen in training); Shetty et al. 2017, *Speaking the Same Language*,
section 5 (the vocabulary that captions use).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from captioner.evaluation.corpus import Tokens


def text_diversity(
    captions: Sequence[Tokens], training: Iterable[Tokens] | None = None
) -> dict[str, float | None]:
    """How varied C tokenised captions are, by name; shares are fractions of one.

    captions: one or more, which may be empty.
    training: the tokenised captions that the model learned from.

    distinct_captions: different captions, word for word. seen_in_training: the share of captions
    that equal one of training; None if not given. vocabulary: different words. mean_length: in
    words. repeated-1: the share of captions with a word directly after itself ("a a"). repeated-2
    to repeated-4: with an n-gram that occurs twice in the caption.
    """
    sentences = [tuple(tokens) for tokens in captions]
    seen = None
    if training is not None:
        known = {tuple(tokens) for tokens in training}
        seen = sum(sentence in known for sentence in sentences) / len(sentences)
    distinct = set(sentences)
    repeated = {
        f"repeated-{n}": sum(_repeats(sentence, n) for sentence in sentences) / len(sentences)
        for n in range(1, 5)
    }
    return {
        "distinct_captions": len(distinct),
        "distinct_share": len(distinct) / len(sentences),
        "seen_in_training": seen,
        "vocabulary": len({word for sentence in distinct for word in sentence}),
        "mean_length": sum(map(len, sentences)) / len(sentences),
        **repeated,
    }


def _repeats(words: tuple[str, ...], length: int) -> bool:
    """Whether an n-gram of this length occurs twice, which may overlap; a word: after itself."""
    if length == 1:
        return any(word == following for word, following in itertools.pairwise(words))
    ngrams = list(zip(*(words[start:] for start in range(length)), strict=False))
    return len(set(ngrams)) < len(ngrams)
