"""The words of a captioner, and the protocol of a translator's vocabularies."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

from captioner.errors import UserError
from captioner.files import read_json, write_json
from captioner.text.plain_text import is_valid_unicode

SPECIAL_WORDS: tuple[str, ...] = ("<pad>", "<start>", "<end>", "<unk>")
"""The words at indices 0 to 3 of every vocabulary."""


class Vocabulary:
    """A fixed list of V words: four special ones, then the ordinary ones.

    Text never encodes to a special word other than `unknown`: a literal "<end>" is unknown, so that
    no text can end or pad a caption.
    """

    pad = 0
    """Pads the shorter captions of a batch."""
    start = 1
    """Precedes the first word."""
    end = 2
    """Follows the last word."""
    unknown = 3
    """Replaces words that are not in the vocabulary."""

    def __init__(self, ordinary_words: Iterable[str]) -> None:
        """Take the ordinary words by index, from 4; each is new and not special."""
        self._index: dict[str, int] = {}
        for index, word in enumerate(ordinary_words, start=len(SPECIAL_WORDS)):
            if not isinstance(word, str):
                raise UserError(f"word {index} of the vocabulary is {word!r}, not a string")
            if word == "" or word in SPECIAL_WORDS or not is_valid_unicode(word):
                raise UserError(f"word {index} of the vocabulary is {word!r}, which is no word")
            if word in self._index:
                raise UserError(
                    f"the vocabulary has {word!r} twice, at {self._index[word]} and at {index}"
                )
            self._index[word] = index
        self._words = (*SPECIAL_WORDS, *self._index)

    @classmethod
    def build(
        cls, tokenised_captions: Iterable[Sequence[str]], minimum_count: int = 5
    ) -> Vocabulary:
        """Keep every word that occurs at least `minimum_count` times in the captions.

        Words are sorted by falling count, then alphabetically, independent of the order of the
        captions.
        """
        counts = Counter(word for caption in tokenised_captions for word in caption)
        kept = [
            word
            for word, count in counts.items()
            if count >= minimum_count and word not in SPECIAL_WORDS
        ]
        return cls(sorted(kept, key=lambda word: (-counts[word], word)))

    def extended(
        self, tokenised_captions: Iterable[Sequence[str]], minimum_count: int = 5
    ) -> Vocabulary:
        """These words, then those of `build` that are missing here."""
        built = Vocabulary.build(tokenised_captions, minimum_count)
        return Vocabulary([*self._index, *(word for word in built._index if word not in self)])

    @property
    def words(self) -> tuple[str, ...]:
        """The V words by index, including the special ones."""
        return self._words

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the index of each word, or `unknown`; adds no start or end."""
        return [self._index.get(word, self.unknown) for word in words]

    def decode(self, indices: Iterable[int]) -> list[str]:
        """Return the words of `indices` up to the first `end`, without `pad` and `start`.

        Unknown words become "<unk>".
        """
        said = takewhile(lambda index: index != self.end, indices)
        return [self._words[index] for index in said if index not in (self.pad, self.start)]

    def to_json(self) -> dict[str, Any]:
        """The vocabulary as a JSON object with the field `words`."""
        return {"words": list(self._words)}

    @classmethod
    def from_json(cls, value: Any, source: str = "vocabulary") -> Vocabulary:
        """Inverse of `to_json`. source: names it in messages."""
        words = value.get("words") if isinstance(value, dict) else None
        if not isinstance(words, list):
            raise UserError(f'{source} is not an object with a list "words"')
        if tuple(words[: len(SPECIAL_WORDS)]) != SPECIAL_WORDS:
            raise UserError(f"{source} does not begin with the words {', '.join(SPECIAL_WORDS)}")
        try:
            return cls(words[len(SPECIAL_WORDS) :])
        except UserError as error:
            raise UserError(f"{source} is ill-formed: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the vocabulary as JSON, atomically."""
        write_json(path, self.to_json(), indent=None)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Read a vocabulary from `save`."""
        return cls.from_json(read_json(path, "vocabulary"), f"vocabulary {path}")

    def __len__(self) -> int:
        """V, including the special words."""
        return len(self._words)

    def __contains__(self, word: object) -> bool:
        """Whether `word` is an ordinary word of the vocabulary."""
        return word in self._index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self._words == other._words

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} words)"


class Word(NamedTuple):
    """A word as a person reads it, and the number of its tokens."""

    text: str
    size: int


class TextVocabulary(Protocol):
    """The V tokens of one or two languages, and how text is split into them.

    Indices 0 to 3 are those of `captioner.text.vocabulary.Vocabulary`: pad, start, end, unknown.
    """

    def __len__(self) -> int:
        """V, including the four special tokens."""

    def split(self, text: str) -> list[str]:
        """Split a text into tokens."""

    def join(self, tokens: Iterable[str]) -> str:
        """Join tokens to a text. `join(split(x))` is x up to what the class documents."""

    def indices(self, tokens: Iterable[str]) -> list[int]:
        """The index of each token, or that of unknown; adds no start or end."""

    def tokens(self, indices: Iterable[int]) -> list[str]:
        """The token of each index, 0 to V - 1."""

    def shown(self, tokens: Iterable[str]) -> list[str]:
        """Tokens as shown beside an alignment."""

    def words(self, tokens: Sequence[str]) -> list[Word]:
        """Group tokens into words, in order; their sizes sum to the number of tokens."""

    def to_json(self) -> dict[str, Any]:
        """The vocabulary as JSON, with its `kind`."""


def truncate(tokens: Sequence[str], maximum: int) -> tuple[list[str], int]:
    """Return the first `maximum` tokens, and how many were cut; callers report the cut."""
    return list(tokens[:maximum]), max(0, len(tokens) - maximum)
