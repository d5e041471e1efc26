"""Words and signs of any language, cut so that they can be put together again as they were."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

from captioner.errors import UserError
from captioner.text.plain_text import CASES, plain_text
from captioner.text.vocabulary import Vocabulary, Word

JOINER = "\N{HALFWIDTH BLACK SQUARE}"
"""Marks the side of a token without a space: "Look!" is "Look" and "￭!"."""

WORD_CASES = (*CASES, "sentence")


@cache
def _token() -> re.Pattern[str]:
    """Regular expression of a token. Compiled on first use: collecting all marks takes time."""
    marks = "".join(
        character
        for character in map(chr, range(0x300, 0x1E950))
        if unicodedata.category(character).startswith("M")
    )  # Vowel signs and accents of all scripts, which `\w` does not match.
    letter = rf"[\w\u200c\u200d{marks}]"  # Zero-width joiners occur inside words, as in Persian.
    return re.compile(
        rf"(?P<elided>(?<!\w)(?i:[ldjsncmt]|qu|jusqu|lorsqu|puisqu)['’](?={letter}))"  # l'homme
        rf"|(?P<clitic>(?<=\w)['’](?i:s|t|d|m|re|ve|ll)(?!{letter}))"  # the man's, he'll
        rf"|(?P<word>{letter}+)"
        r"|(?P<sign>\S)"
    )


def split_words(text: str) -> list[str]:
    """Split a `plain_text` into words and signs; `join_words` restores the text exactly.

    Words are runs of letters, marks and digits. Elided articles ("l'") and clitics ("'s") are
    separate tokens. `JOINER` marks where no space stands between two tokens.
    """
    tokens: list[str] = []
    end = -1
    before = ""
    for match in _token().finditer(text):
        token, kind = match[0], match.lastgroup or ""
        if match.start() == end:
            if kind in ("sign", "clitic") or before == "word":
                token = JOINER + token
            else:
                tokens[-1] += JOINER
        tokens.append(token)
        end, before = match.end(), kind
    return tokens


def join_words(tokens: Iterable[str]) -> str:
    """Join tokens from `split_words` to text."""
    parts: list[str] = []
    needs_space = False
    for token in tokens:
        if needs_space and not token.startswith(JOINER):
            parts.append(" ")
        parts.append(token.strip(JOINER))
        needs_space = not token.endswith(JOINER)
    return "".join(parts)


@dataclass
class WordVocabulary:
    """Words of one or two languages, split by `split_words`.

    Languages without spaces between words need subwords instead.

    case: `keep`; `lower`; or `sentence`: the first word of a text is lower-cased if the vocabulary
    has it more often in lower case ("The", but not "Hans"), and joined texts are capitalised.

    `join(split(x))` is `plain_text(x, case)`, capitalised for `sentence`. By way of `indices` and
    `tokens`, unknown words become "<unk>".

    vocabulary: most frequent words first.
    """

    kind: ClassVar[str] = "words"

    vocabulary: Vocabulary
    case: str = "sentence"

    def __post_init__(self) -> None:
        if self.case not in WORD_CASES:
            raise UserError(f"case {self.case!r} of words is not one of {', '.join(WORD_CASES)}")

    @classmethod
    def learn(
        cls, texts: Iterable[str], minimum_count: int = 2, case: str = "sentence"
    ) -> WordVocabulary:
        """Keep every token that occurs at least `minimum_count` times in the texts.

        Independent of the order of the texts.
        """
        inside: Counter[str] = Counter()
        first: Counter[str] = Counter()
        for text in texts:
            words = split_words(plain_text(text, _plain_case(case)))
            inside.update(words[1:])
            first.update(words[:1])
        if case == "sentence":
            for word, count in first.items():
                small = word.lower()
                known = _is_capitalised(word) and 0 < inside[small] >= inside[word]
                inside[small if known else word] += count
        else:
            inside += first
        counted = ([word] * count for word, count in inside.items())
        return cls(Vocabulary.build(counted, minimum_count), case)

    def __len__(self) -> int:
        """V, including the four special tokens."""
        return len(self.vocabulary)

    def split(self, text: str) -> list[str]:
        """See `TextVocabulary.split`."""
        words = split_words(plain_text(text, _plain_case(self.case)))
        if self.case == "sentence" and words and _is_capitalised(words[0]):
            small = words[0].lower()
            small_rank, rank = self.vocabulary.encode([small, words[0]])
            is_rarer = words[0] not in self.vocabulary or small_rank < rank
            if small in self.vocabulary and is_rarer:
                words[0] = small
        return words

    def join(self, tokens: Iterable[str]) -> str:
        """See `TextVocabulary.join`."""
        text = join_words(tokens)
        return capitalise(text) if self.case == "sentence" else text

    def indices(self, tokens: Iterable[str]) -> list[int]:
        """See `TextVocabulary.indices`."""
        return self.vocabulary.encode(tokens)

    def tokens(self, indices: Iterable[int]) -> list[str]:
        """See `TextVocabulary.tokens`."""
        return [self.vocabulary.words[index] for index in indices]

    def shown(self, tokens: Iterable[str]) -> list[str]:
        """See `TextVocabulary.shown`. Words without joiners."""
        return [token.strip(JOINER) for token in tokens]

    def words(self, tokens: Sequence[str]) -> list[Word]:
        """See `TextVocabulary.words`. Every token is a word."""
        return [Word(text, 1) for text in self.shown(tokens)]

    def to_json(self) -> dict[str, Any]:
        """See `TextVocabulary.to_json`."""
        return {"kind": self.kind, "case": self.case, **self.vocabulary.to_json()}

    @classmethod
    def from_json(cls, value: Any, source: str = "vocabulary") -> WordVocabulary:
        """Inverse of `to_json`. source: names it in messages."""
        vocabulary = Vocabulary.from_json(value, source)
        try:
            return cls(vocabulary, str(value.get("case")))
        except UserError as error:
            raise UserError(f"{source} is ill-formed: {error}") from None


def capitalise(text: str) -> str:
    """Upper-case the first letter, unless that makes two letters, as in "ß"."""
    capital = text[:1].upper()
    return capital + text[1:] if len(capital) == 1 else text


def _is_capitalised(word: str) -> bool:
    """Whether a word is `capitalise` of its lower case."""
    small = word.lower()
    return small != word and capitalise(small) == word


def _plain_case(case: str) -> str:
    return "lower" if case == "lower" else "keep"
