"""What the backends of our own captioners share: a vocabulary and the n-grams of people."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from captioner.backends.protocol import OF_TRANSFORMERS, Sentence
from captioner.decoding.options import SearchOptions
from captioner.decoding.rules import ORDER, Constraints, is_in_table, ngram_keys
from captioner.decoding.search import Hypothesis
from captioner.text.languages import FUNCTION_WORDS
from captioner.text.vocabulary import Vocabulary

NGRAMS = "ngrams"  # A tensor of the weights: (N, ORDER).


class VocabularyCaptions:
    """A `CaptionBackend` without its networks.

    ngrams: the table of `Rules` to which the search keeps, or None; torch's is on the device of
    the weights.
    """

    lacks: ClassVar[Sequence[str]] = tuple(OF_TRANSFORMERS)

    vocabulary: Vocabulary
    ngrams: Any

    @property
    def vocabulary_size(self) -> int:
        return len(self.vocabulary)

    def constraints(self, search: SearchOptions) -> Constraints:
        """The limits of a search."""
        vocabulary = self.vocabulary
        function_words = sorted(FUNCTION_WORDS & set(vocabulary.words))
        return Constraints(
            search,
            forbidden=(vocabulary.pad, vocabulary.start, vocabulary.unknown),
            repeatable=tuple(vocabulary.encode(function_words)),
            ngram_table=self.ngrams,
        )

    def in_words(self, hypothesis: Hypothesis) -> Sentence:
        """A hypothesis of tokens as a sentence."""
        return Sentence(
            words=[self.vocabulary.words[token] for token in hypothesis.tokens],
            log_probabilities=hypothesis.token_log_probabilities,
            attention=hypothesis.attention,
            score=hypothesis.score,
            cut=hypothesis.cut,
        )

    def unknown(self, words: Iterable[str]) -> list[str]:
        return sorted({word for word in words if word not in self.vocabulary})

    def is_sentence(self, words: Sequence[str]) -> bool:
        if self.ngrams is None:
            return False
        vocabulary, size, before = self.vocabulary, len(self.vocabulary), ORDER - 1
        tokens = [*[vocabulary.start] * before, *vocabulary.encode(words), vocabulary.end]
        ngrams = (tokens[last - before : last + 1] for last in range(before, len(tokens)))
        return all(is_in_table(self.ngrams, ngram_keys(ngram, size), size) for ngram in ngrams)
