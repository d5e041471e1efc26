"""What the backends of our own captioners share: a vocabulary and the n-grams of people."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from captioner.backends.protocol import Sentence
from captioner.decoding.options import SearchOptions
from captioner.decoding.rules import ORDER, Constraints, ngram_keys
from captioner.decoding.search import Hypothesis
from captioner.text.languages import FUNCTION_WORDS
from captioner.text.vocabulary import Vocabulary


def caption_constraints(search: SearchOptions, vocabulary: Vocabulary, ngrams: Any) -> Constraints:
    """The limits of a search of captions. ngrams: of `Rules`, or None."""
    function_words = sorted(FUNCTION_WORDS & set(vocabulary.words))
    return Constraints(
        search,
        forbidden=(vocabulary.pad, vocabulary.start, vocabulary.unknown),
        repeatable=tuple(vocabulary.encode(function_words)),
        ngrams=ngrams,
    )


def in_words(hypotheses: list[list[Hypothesis]], vocabulary: Vocabulary) -> list[list[Sentence]]:
    """The hypotheses of each photo as sentences."""
    return [[_sentence(each, vocabulary) for each in of_photo] for of_photo in hypotheses]


def _sentence(hypothesis: Hypothesis, vocabulary: Vocabulary) -> Sentence:
    return Sentence(
        words=[vocabulary.words[token] for token in hypothesis.tokens],
        log_probabilities=hypothesis.token_log_probabilities,
        attention=hypothesis.attention,
        score=hypothesis.score,
        cut=hypothesis.cut,
    )


def all_ngrams_known(words: Sequence[str], vocabulary: Vocabulary, ngrams: Any) -> bool:
    """Whether all n-grams of a caption are among the sorted keys; False without keys."""
    if ngrams is None:
        return False
    before = ORDER - 1
    tokens = [*[vocabulary.start] * before, *vocabulary.encode(words), vocabulary.end]
    for last in range(before, len(tokens)):
        key = ngram_keys(tokens[last - before : last + 1], len(vocabulary))
        place = bisect_left(range(len(ngrams)), key, key=lambda place: int(ngrams[place]))
        if place == len(ngrams) or int(ngrams[place]) != key:
            return False
    return True
