"""The protocol of word and subword vocabularies: text to indices and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol


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
