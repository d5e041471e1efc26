"""A captioner's vocabulary: its words, by index."""

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, takewhile

from captioner.errors import CONTROLS, UserError
from captioner.files import LARGEST_CONFIG, read_json, write_json
from captioner.text.languages import ARTICLES, is_valid_unicode

SPECIAL_WORDS: tuple[str, ...] = ("<pad>", "<start>", "<end>", "<unk>")
"""The words at indices 0 to 3 of every vocabulary."""

LINE_CONTROLS = re.compile(rf"{CONTROLS.pattern}|[\t\n]")  # They steer a terminal, or end a line.


class Vocabulary:
    """A fixed list of V words: four special ones, then the ordinary ones, by index.

    A literal "<end>" encodes to `unknown`, so that no text can end or pad a caption.

    classes: V indices, of one word of each word's class, such as "dog" for "puppy": see
        `repeat_distance`. By default none, and every word is its own.
    """

    pad, start, end, unknown = range(4)  # The indices of `SPECIAL_WORDS`.

    def __init__(
        self,
        ordinary_words: Iterable[str],
        source: str = "vocabulary",
        classes: Sequence[int] = (),
    ) -> None:
        self._index: dict[str, int] = {}
        for index, word in enumerate(ordinary_words, start=len(SPECIAL_WORDS)):
            is_text = isinstance(word, str) and word and is_valid_unicode(word)
            is_word = is_text and word not in SPECIAL_WORDS and not LINE_CONTROLS.search(word)
            if not is_word or word in self._index:
                reason = "is no word, special, there twice, or has a control character"
                raise UserError(f"{source}: word {index}, {word!r}, {reason}")
            self._index[word] = index
        self.words = (*SPECIAL_WORDS, *self._index)
        self.classes = tuple(classes)
        are_words = all(type(each) is int and 0 <= each < len(self) for each in classes)
        if not are_words or len(classes) not in (0, len(self)):
            raise UserError(f'{source}: "classes" has not the index of a word for each word')

    @classmethod
    def build(cls, captions: Iterable[Iterable[str]], minimum_count: int = 5) -> "Vocabulary":
        """The printable words that occur so many times, by falling count, then letters."""
        counts = Counter(chain.from_iterable(captions))
        frequent = (word for word, count in counts.items() if count >= minimum_count)
        kept = {word for word in frequent if not LINE_CONTROLS.search(word)}
        return cls(sorted(kept - set(SPECIAL_WORDS), key=lambda word: (-counts[word], word)))

    def extended(self, captions: Iterable[Iterable[str]], minimum_count: int = 5) -> "Vocabulary":
        """These words, then those of `build` that are missing here."""
        built = Vocabulary.build(captions, minimum_count)
        words = {**self._index, **built._index}
        every = range(len(SPECIAL_WORDS) + len(words))
        classes = [*self.classes, *every[len(self) :]] if self.classes else ()
        return Vocabulary(words, classes=classes)

    def extends(self, other: "Vocabulary") -> bool:
        """Whether this begins with all words of another."""
        return self.words[: len(other)] == other.words

    def encode(self, words: Iterable[str]) -> list[int]:
        """The index of each word, or `unknown`; adds no start or end."""
        return [self._index.get(word, self.unknown) for word in words]

    def decode(self, indices: Iterable[int]) -> list[str]:
        """Return the words of `indices` up to the first `end`, without `pad` and `start`."""
        before_end = takewhile(lambda index: index != self.end, indices)
        return [self.words[index] for index in before_end if index not in (self.pad, self.start)]

    def to_json(self) -> dict[str, object]:
        """The vocabulary as JSON."""
        classes = {"classes": list(self.classes)} if self.classes else {}
        return {"words": list(self.words), **classes}

    @classmethod
    def from_json(cls, value: object, source: str = "vocabulary") -> "Vocabulary":
        """Inverse of `to_json`. source: names it in messages."""
        fields = value if isinstance(value, dict) else {}
        words, classes = fields.get("words"), fields.get("classes", [])
        if not isinstance(words, list) or tuple(words[: len(SPECIAL_WORDS)]) != SPECIAL_WORDS:
            raise UserError(f'{source} has no "words" that begin with {", ".join(SPECIAL_WORDS)}')
        if not isinstance(classes, list):
            raise UserError(f'{source}: "classes" is no list')
        return cls(words[len(SPECIAL_WORDS) :], source, classes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the vocabulary as JSON, atomically."""
        write_json(path, self.to_json(), indent=None)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Vocabulary":
        """Read a vocabulary from `save`."""
        return cls.from_json(read_json(path, "vocabulary", LARGEST_CONFIG), f"vocabulary {path}")

    @property
    def is_english(self) -> bool:
        """Whether it has the articles of English, and so is of no French or German captions."""
        return all(article in self for article in ARTICLES)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.to_json() == other.to_json()
