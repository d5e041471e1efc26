"""From any text to indices and back to any text: what words and subwords have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from captioner.errors import UserError


class Word(NamedTuple):
    """A word as a person reads it, and of how many tokens it is made."""

    text: str
    size: int


class TextVocabulary(Protocol):
    """The V tokens of a language, or of two together, and how text is cut into them.

    Indices 0 to 3 are those of `captioner.text.vocabulary.Vocabulary`: pad, start, end, unknown.
    """

    def __len__(self) -> int:
        """V, the four special tokens included."""
        ...

    @property
    def complete(self) -> bool:
        """Whether any text has tokens here, so that none is unknown."""
        ...

    def split(self, text: str) -> list[str]:
        """The tokens of a text, as strings that `join` puts together again."""
        ...

    def join(self, tokens: Iterable[str]) -> str:
        """The text of tokens. `join(split(x))` is x, as far as the vocabulary documents it."""
        ...

    def indices(self, tokens: Iterable[str]) -> list[int]:
        """The index of each token, that of unknown for those not here; no start or end is added."""
        ...

    def tokens(self, indices: Iterable[int]) -> list[str]:
        """The token of each index. Raises `ValueError` for one that is not in 0 to V - 1."""
        ...

    def shown(self, tokens: Iterable[str]) -> list[str]:
        """Tokens as a person reads them beside an alignment."""
        ...

    def words(self, tokens: Sequence[str]) -> list[Word]:
        """The words that tokens make, in order; their sizes sum to the number of tokens."""
        ...

    def to_json(self) -> dict[str, Any]:
        """All of it, fit for a JSON file, with its `kind`."""
        ...


def encode(vocabulary: TextVocabulary, text: str) -> list[int]:
    """The indices of a text's tokens; no start or end is added."""
    return vocabulary.indices(vocabulary.split(text))


def decode(vocabulary: TextVocabulary, indices: Iterable[int]) -> str:
    """The text of indices."""
    return vocabulary.join(vocabulary.tokens(indices))


def truncated(tokens: Sequence[str], maximum: int) -> tuple[list[str], int]:
    """The first `maximum` tokens of a text, and how many were behind them.

    A model reads no more than it was made for. Who cuts a text says so to the person who gave it.
    Raises `UserError` when the maximum is below 1.
    """
    if maximum < 1:
        raise UserError(f"maximum length {maximum} of a text is not at least 1")
    return list(tokens[:maximum]), max(0, len(tokens) - maximum)
