"""Words and signs of any language, cut so that they can be put together again as they were."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, ClassVar

from captioner.errors import UserError
from captioner.text.plain_text import CASES, plain_text
from captioner.text.text_vocabulary import Word
from captioner.text.vocabulary import Vocabulary

JOINER = "\N{HALFWIDTH BLACK SQUARE}"
"""On that side of a token on which no space stands: "Look!" is "Look" and "￭!"."""

WORD_CASES = (*CASES, "sentence")


@cache
def _token() -> re.Pattern[str]:
    """A token of text. Made when it is first needed: going through all marks takes time."""
    marks = "".join(
        character
        for character in map(chr, range(0x300, 0x1E950))
        if unicodedata.category(character).startswith("M")
    )  # Vowel signs, accents and the like of all scripts, which `\w` leaves out.
    letter = rf"[\w\u200c\u200d{marks}]"  # The joiners stand inside of words, as in Persian.
    return re.compile(
        rf"(?P<elided>(?<!\w)(?i:[ldjsncmt]|qu|jusqu|lorsqu|puisqu)['’](?={letter}))"  # l'homme
        rf"|(?P<clitic>(?<=\w)['’](?i:s|t|d|m|re|ve|ll)(?!{letter}))"  # the man's, he'll
        rf"|(?P<word>{letter}+)"
        r"|(?P<sign>\S)"
    )


def split_words(text: str) -> list[str]:
    """Words and signs of a `plain_text`, with a joiner where no space stands between two.

    Words are runs of letters, their marks, and digits; an elided article ("l'") and what is short
    for a word ("'s") are tokens of their own. `join_words` gives the text back exactly.
    """
    found: list[str] = []
    end = -1
    before = ""
    for match in _token().finditer(text):
        token, kind = match[0], match.lastgroup or ""
        if match.start() == end:
            if kind in ("sign", "clitic") or before == "word":
                token = JOINER + token
            else:
                found[-1] += JOINER
        found.append(token)
        end, before = match.end(), kind
    return found


def join_words(tokens: Iterable[str]) -> str:
    """The text of tokens with joiners."""
    parts: list[str] = []
    apart = False
    for token in tokens:
        if apart and not token.startswith(JOINER):
            parts.append(" ")
        parts.append(token.strip(JOINER))
        apart = not token.endswith(JOINER)
    return "".join(parts)


class WordVocabulary:
    """The words of one language, or of two together, as `split_words` cuts them.

    Of scripts that put no spaces between words, that is a sentence at once: they need subwords.

    case: `keep`; `lower`, small letters for all; or `sentence`: the first word of a text in small
    letters where the vocabulary has it so and not, or less often, with a capital ("The", but not
    "Hans"), and texts that come out begin with a capital.

    `join(split(x))` is `plain_text(x, case)`, with a capital at its beginning for `sentence`; with
    `indices` and `tokens` in between, words that are not here come out as "<unk>".
    """

    kind: ClassVar[str] = "words"

    def __init__(self, vocabulary: Vocabulary, case: str = "sentence") -> None:
        """Take the words of a vocabulary, the commonest first. Raises `UserError` for the case."""
        if case not in WORD_CASES:
            raise UserError(f"case {case!r} of words is not one of {', '.join(WORD_CASES)}")
        self.vocabulary = vocabulary
        self.case = case
        self._ranks = {word: rank for rank, word in enumerate(vocabulary.words)}

    @classmethod
    def learn(
        cls, texts: Iterable[str], minimum_count: int = 2, case: str = "sentence"
    ) -> WordVocabulary:
        """Every token that occurs at least `minimum_count` times in the texts.

        The order of the texts does not matter. Raises `UserError` for a count below 1.
        """
        inside: Counter[str] = Counter()
        first: Counter[str] = Counter()
        for text in texts:
            words = split_words(plain_text(text, _letters(case)))
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
        """V, the four special tokens included."""
        return len(self.vocabulary)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WordVocabulary) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.vocabulary, self.case))

    @property
    def complete(self) -> bool:
        """Never: there is always another word."""
        return False

    def split(self, text: str) -> list[str]:
        """See `TextVocabulary.split`."""
        words = split_words(plain_text(text, _letters(self.case)))
        if self.case == "sentence" and words and _is_capitalised(words[0]):
            small = words[0].lower()
            lowest = len(self._ranks)
            if small in self.vocabulary and self._ranks[small] < self._ranks.get(words[0], lowest):
                words[0] = small
        return words

    def join(self, tokens: Iterable[str]) -> str:
        """See `TextVocabulary.join`."""
        text = join_words(tokens)
        return capitalised(text) if self.case == "sentence" else text

    def indices(self, tokens: Iterable[str]) -> list[int]:
        """See `TextVocabulary.indices`."""
        return self.vocabulary.encode(tokens)

    def tokens(self, indices: Iterable[int]) -> list[str]:
        """See `TextVocabulary.tokens`."""
        words = self.vocabulary.words
        found = []
        for index in indices:
            if not 0 <= index < len(words):
                raise ValueError(f"index {index} is not in 0 to {len(words) - 1}")
            found.append(words[index])
        return found

    def shown(self, tokens: Iterable[str]) -> list[str]:
        """Words without joiners."""
        return [token.strip(JOINER) for token in tokens]

    def words(self, tokens: Sequence[str]) -> list[Word]:
        """Every token is a word, or a sign."""
        return [Word(text, 1) for text in self.shown(tokens)]

    def to_json(self) -> dict[str, Any]:
        """See `TextVocabulary.to_json`."""
        return {"kind": self.kind, "case": self.case, **self.vocabulary.to_json()}

    @classmethod
    def from_json(cls, value: Any, source: str = "vocabulary") -> WordVocabulary:
        """The vocabulary of which `value` is the `to_json`; `UserError` when it is ill-formed."""
        vocabulary = Vocabulary.from_json(value, source)
        try:
            return cls(vocabulary, str(value.get("case")))
        except UserError as error:
            raise UserError(f"{source} is ill-formed: {error}") from None


def capitalised(text: str) -> str:
    """The text with a capital at its beginning, if its first letter has one that is one letter."""
    capital = text[:1].upper()
    return capital + text[1:] if len(capital) == 1 else text


def _is_capitalised(word: str) -> bool:
    """Whether a word is one that `capitalised` makes of the same in small letters."""
    small = word.lower()
    return small != word and capitalised(small) == word


def _letters(case: str) -> str:
    return "lower" if case == "lower" else "keep"
