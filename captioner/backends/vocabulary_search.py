"""What the backends of our own captioners share: a vocabulary and the n-grams of people."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from captioner.arrays import Values
from captioner.backends.protocol import OF_TRANSFORMERS, Sentence
from captioner.decoding.options import SearchOptions
from captioner.decoding.rules import Constraints, is_in_table, sentence_keys
from captioner.decoding.search import Hypothesis
from captioner.errors import UserError
from captioner.text.languages import FUNCTION_WORDS
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary

NGRAMS = "ngrams"  # A tensor of the weights: (N, ORDER).


class VocabularyCaptions:
    """A `CaptionBackend` without its networks.

    ngrams: the table of `Rules` to which the search keeps, or None; torch's is on the device of
    the weights.
    """

    lacks: ClassVar[Sequence[str]] = tuple(OF_TRANSFORMERS)

    vocabulary: Vocabulary
    ngrams: Values

    @property
    def vocabulary_size(self) -> int:
        return len(self.vocabulary)

    def constraints(self, search: SearchOptions) -> Constraints:
        """The limits of a search."""
        vocabulary = self.vocabulary
        begin = tuple(vocabulary.encode(tokenize(search.begin)))
        if self.ngrams is not None and not self._are_known(begin):
            raise UserError(f"people wrote no caption that begins {search.begin!r}: change it")
        words = vocabulary.encode(search.forbidden_words)
        return Constraints(
            search,
            forbidden=(vocabulary.pad, vocabulary.start, vocabulary.unknown, *words),
            repeatable=tuple(vocabulary.encode(FUNCTION_WORDS & {*vocabulary.words})),
            ngram_table=self.ngrams,
            begin=begin,
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
        tokens = [*self.vocabulary.encode(words), self.vocabulary.end]
        return self.ngrams is not None and self._are_known(tokens)

    def _are_known(self, tokens: Sequence[int]) -> bool:
        """Whether all n-grams of tokens, after starts, are in the table."""
        keys = sentence_keys(tokens, self.vocabulary_size).tolist()
        return all(is_in_table(self.ngrams, key, self.vocabulary_size) for key in keys)
