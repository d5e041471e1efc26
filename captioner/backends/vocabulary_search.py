"""What the backends of our own captioners share: a vocabulary and the n-grams of people."""

from collections.abc import Iterable, Sequence
from typing import Any

from captioner.backends.protocol import Sentence
from captioner.decoding.options import SearchOptions
from captioner.decoding.rules import Constraints, is_in_table, sentence_keys
from captioner.decoding.search import Hypothesis
from captioner.errors import UserError
from captioner.text.languages import FUNCTION_WORDS
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary

NGRAMS = "ngrams"  # A tensor of the weights: (N, ORDER).


def caption_constraints(search: SearchOptions, vocabulary: Vocabulary, table: Any) -> Constraints:
    """The limits of a search of captions. table: `ngram_table` of `Rules`, or None."""
    function_words = sorted(FUNCTION_WORDS & set(vocabulary.words))
    begin = tuple(vocabulary.encode(tokenize(search.begin)))
    if table is not None and not _are_known(begin, table, len(vocabulary)):
        raise UserError(f"people wrote no caption that begins {search.begin!r}: begin otherwise")
    words = vocabulary.encode(search.forbidden_words)
    return Constraints(
        search,
        forbidden=(vocabulary.pad, vocabulary.start, vocabulary.unknown, *words),
        repeatable=tuple(vocabulary.encode(function_words)),
        ngram_table=table,
        begin=begin,
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


def unknown_words(words: Iterable[str], vocabulary: Vocabulary) -> list[str]:
    """Those words, each once, that a vocabulary lacks."""
    return sorted({word for word in words if word not in vocabulary})


def all_ngrams_known(words: Sequence[str], vocabulary: Vocabulary, table: Any) -> bool:
    """Whether all n-grams of a caption are in a table; False without one."""
    tokens = [*vocabulary.encode(words), vocabulary.end]
    return table is not None and _are_known(tokens, table, len(vocabulary))


def _are_known(tokens: Sequence[int], table: Any, vocabulary_size: int) -> bool:
    """Whether all n-grams of tokens, after starts, are in a table."""
    keys = sentence_keys(tokens, vocabulary_size).tolist()
    return all(is_in_table(table, key, vocabulary_size) for key in keys)
