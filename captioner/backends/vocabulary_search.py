"""What the backends of our own captioners share: a vocabulary."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

from captioner.backends.protocol import OF_TRANSFORMERS, Sentence
from captioner.decoding.options import SearchOptions
from captioner.decoding.rules import Constraints
from captioner.decoding.search import Hypothesis
from captioner.text.languages import FUNCTION_WORDS, with_articles
from captioner.text.tokenizer import tokenize
from captioner.text.vocabulary import Vocabulary


class VocabularyCaptions:
    """A `CaptionBackend` without its networks."""

    lacks: ClassVar[Sequence[str]] = tuple(OF_TRANSFORMERS)

    vocabulary: Vocabulary

    @property
    def vocabulary_size(self) -> int:
        return len(self.vocabulary)

    def constraints(self, search: SearchOptions) -> Constraints:
        """The limits of a search."""
        vocabulary = self.vocabulary
        phrases = sorted(search.forbidden_phrases)
        return Constraints(
            search,
            forbidden=(vocabulary.pad, vocabulary.start, vocabulary.unknown),
            repeatable=tuple(vocabulary.encode(FUNCTION_WORDS & {*vocabulary.words})),
            classes=vocabulary.classes,
            phrases=tuple(tuple(vocabulary.encode(phrase.split())) for phrase in phrases),
            begin=tuple(vocabulary.encode(tokenize(search.begin))),
        )

    def in_words(self, hypothesis: Hypothesis) -> Sentence:
        """A hypothesis of tokens as a sentence, in English with the articles that it takes."""
        words = [self.vocabulary.words[token] for token in hypothesis.tokens]
        if self.vocabulary.is_english:
            words = with_articles(words)
        return Sentence(
            words=words,
            log_probabilities=hypothesis.token_log_probabilities,
            attention=hypothesis.attention,
            score=hypothesis.score,
            cut=hypothesis.cut,
        )

    def unknown(self, words: Iterable[str]) -> list[str]:
        return sorted({word for word in words if word not in self.vocabulary})
