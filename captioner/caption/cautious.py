"""Chooses the cautious caption of a photo: many words that are likely true, few others."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from captioner.caption.caption import Caption, sentence
from captioner.caption.confidence import Caution
from captioner.text.languages import FUNCTION_WORDS, word_kinds, word_paragraphs

_DETERMINERS, _PRONOUNS = word_paragraphs("en")[:2]
_NO_BEGIN = FUNCTION_WORDS & (_DETERMINERS | _PRONOUNS)  # Within a phrase.
_NO_END = ("quality", "number")  # "A red" is no caption.
_BOUND = ("of", "to")  # "In front" lacks what follows.


def cautious_caption(captions: Sequence[Caption], caution: Caution, given: int = 0) -> Caption:
    """The best of the captions of a photo and their shorter forms, by their word confidences.

    Best is the largest sum of the confidences above `least_likely`, less `nothing_true` times the
    probability that no word is true. given: see `shorter_forms`.
    """

    def worth(form: Caption) -> float:
        scores = [score for score in form.word_confidence or () if score is not None]
        none_true = prod(1 - score for score in scores)
        value = sum(score - caution.least_likely for score in scores)
        return value - caution.nothing_true * none_true

    forms = (form for caption in captions for form in shorter_forms(caption, given))
    return max((*captions, *forms), key=worth)


def shorter_forms(caption: Caption, given: int = 0) -> Iterator[Caption]:
    """The caption without its last phrases, from long to short; each ends in a noun or a verb.

    A verb or preposition begins a phrase. given: how many words at the beginning stay.

    All have its score and its confidence, and the log-probability of their own words and its end.
    """
    words, terms = caption.words, caption.word_log_probabilities
    kinds = word_kinds(words)
    of_end = caption.log_probability - sum(terms)
    for end in range(len(words) - 1, max(given, 1) - 1, -1):
        begins = kinds[end] == "action" or (kinds[end] is None and words[end] not in _NO_BEGIN)
        last = kinds[end - 1]
        if not begins or words[end] in _BOUND or last is None or last in _NO_END:
            continue
        scores = caption.word_confidence
        yield replace(
            caption,
            text=sentence(words[:end]),
            words=words[:end],
            log_probability=sum(terms[:end]) + of_end,
            word_log_probabilities=terms[:end],
            attention=caption.attention[:end],
            word_confidence=scores and scores[:end],
        )
