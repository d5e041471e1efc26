"""Chooses the cautious caption of a photo: many words that are likely true, few others."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, compress, pairwise, product
from math import prod

from captioner.caption.caption import Caption, sentence
from captioner.caption.confidence import Caution
from captioner.text.languages import FUNCTION_WORDS, word_kinds, word_paragraphs

IsSentence = Callable[[Sequence[str]], bool]
"""Whether people write a caption of these words."""

MOST_PHRASES = 8
"""Most phrases of a caption; any but the first may be left out."""

_DETERMINERS, _PRONOUNS, *_ = word_paragraphs("en")
_PERSONS, _PEOPLE = word_paragraphs("persons")
_NAMES = _PERSONS | _PEOPLE


def cautious_caption(
    captions: Sequence[Caption], is_sentence: IsSentence, caution: Caution
) -> Caption:
    """The best of the captions of a photo and their shorter forms, by their word confidences.

    Best is the largest sum of the confidences above `least_likely`, less `nothing_true` times the
    probability that no word is true.
    """

    def worth(form: Caption) -> float:
        scores = [score for score in form.word_confidence or () if score is not None]
        none_true = prod(1 - score for score in scores)
        value = sum(score - caution.least_likely for score in scores)
        return value - caution.nothing_true * none_true

    # Where the best caption has no person, "a man" of another one is no person either.
    has_person = not _NAMES.isdisjoint(captions[0].words)
    general = [_with_persons(each, caution) for each in captions] if has_person else []
    whole = (*captions, *general)
    forms = chain.from_iterable(shorter_forms(caption, is_sentence) for caption in whole)
    return max((*captions, *forms), key=worth)


def shorter_forms(caption: Caption, is_sentence: IsSentence) -> Iterator[Caption]:
    """The caption, and the caption without some of its phrases.

    All have its score and its confidence, and the log-probability of their own words and its end.
    """
    first, *others = _phrases(caption.words)
    of_end = caption.log_probability - sum(caption.word_log_probabilities)
    for kept in product((True, False), repeat=len(others)):
        places = [*first, *chain.from_iterable(compress(others, kept))]
        words = tuple(caption.words[place] for place in places)
        if words.count("person") > 1 or not is_sentence(words):
            continue
        terms = tuple(caption.word_log_probabilities[place] for place in places)
        scores = caption.word_confidence
        yield replace(
            caption,
            text=sentence(words),
            words=words,
            log_probability=sum(terms) + of_end,
            word_log_probabilities=terms,
            attention=caption.attention[places],
            word_confidence=scores and tuple(scores[place] for place in places),
        )


def _phrases(words: Sequence[str]) -> list[range]:
    """Split into phrases, by place; a verb or preposition begins each but the first."""
    within = FUNCTION_WORDS & (_DETERMINERS | _PRONOUNS)
    kinds = word_kinds(words)
    begins = [
        place
        for place, (word, kind) in enumerate(zip(words, kinds, strict=True))
        if place and (kind == "action" or (kind is None and word not in within))
    ][: MOST_PHRASES - 1]
    return [range(first, end) for first, end in pairwise([0, *begins, len(words)])]


def _with_persons(caption: Caption, caution: Caution) -> Caption:
    """Replace each unsure "man", "girls" and the like by "person" or "people"."""
    words = list(caption.words)
    scores = list(caption.word_confidence or ())
    for place, score in enumerate(scores):
        if score is None or score >= caution.sure_of_a_person:
            continue
        if words[place] in _NAMES:
            words[place] = "person" if words[place] in _PERSONS else "people"
            # There is no person if "man" is false and nobody else is there.
            scores[place] = 1 - (1 - score) * (1 - caution.still_a_person)
    return replace(caption, text=sentence(words), words=tuple(words), word_confidence=tuple(scores))
