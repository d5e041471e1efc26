"""Vocabularies of a translator: words or subwords, into which it splits sentences."""

import base64
import io
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from typing_extensions import Self

from captioner.errors import UserError
from captioner.files import JsonObject, read_json, write_json
from captioner.model_folders import SOURCE, TARGET, VOCABULARY
from captioner.text.languages import UNSPACED, plain_text
from captioner.text.vocabulary import LINE_CONTROLS, SPECIAL_WORDS, Vocabulary

CASES = ("keep", "lower", "sentence")


class Word(NamedTuple):
    """A word as a person reads it, and the number of its tokens."""

    text: str
    size: int


@dataclass
class WordVocabulary:
    """Words of one or two languages with spaces between them, split by `split_words`.

    case: `keep`; `lower`; or `sentence`: the first word of a text is lower-cased if the vocabulary
    has it more often in lower case ("The", but not "Hans"), and joined texts are capitalised.

    `join(split(x))` is `plain_text(x, case)`, capitalised for `sentence`; but for unknown words.
    """

    kind: ClassVar[str] = "words"

    vocabulary: Vocabulary
    case: str = "sentence"

    @classmethod
    def learn(cls, texts: Iterable[str], minimum_count: int = 2, case: str = "sentence") -> Self:
        """Keep every token that occurs at least `minimum_count` times in the texts."""
        inside, first = Counter[str](), Counter[str]()
        for text in texts:
            words = split_words(plain_text(text, case))
            inside.update(words[1:])
            first.update(words[:1])
        for word, count in first.items():
            small = word.lower() if case == "sentence" and _is_capitalised(word) else word
            inside[small if 0 < inside[small] >= inside[word] else word] += count
        return cls(Vocabulary.build([inside.elements()], minimum_count), case)

    def __len__(self) -> int:
        return len(self.vocabulary)

    def split(self, text: str) -> list[str]:
        """Split a text into tokens."""
        words = split_words(plain_text(text, self.case))
        if self.case == "sentence" and words and _is_capitalised(words[0]):
            known = self.vocabulary
            forms = (words[0], words[0].lower())  # By falling count, after unknown ones.
            words[0] = min(forms, key=lambda form: (form not in known, known.encode([form])))
        return words

    def join(self, tokens: Iterable[str]) -> str:
        """Join tokens to a text."""
        text = re.sub(f" ?{JOINER} ?", "", " ".join(tokens))
        return capitalise(text) if self.case == "sentence" else text

    def indices(self, tokens: Iterable[str]) -> list[int]:
        """The index of each token, or that of unknown; adds no start or end."""
        return self.vocabulary.encode(tokens)

    def tokens(self, indices: Iterable[int]) -> list[str]:
        """The token of each index, 0 to V - 1."""
        return [self.vocabulary.words[index] for index in indices]

    def words(self, tokens: Sequence[str]) -> list[Word]:
        """Group tokens into words: every token is a word, shown without joiners."""
        return [Word(text, 1) for text in without_joiners(tokens)]

    def to_json(self) -> dict[str, object]:
        """The vocabulary as JSON, with its `kind`."""
        return {"kind": self.kind, "case": self.case, **self.vocabulary.to_json()}

    @classmethod
    def from_json(cls, value: JsonObject, source: str = "vocabulary") -> Self:
        """Inverse of `to_json`. source: names it in messages."""
        return cls(Vocabulary.from_json(value, source), value["case"])


JOINER = "\N{HALFWIDTH BLACK SQUARE}"  # The side of a token without a space: "Look", "￭!".


@cache
def _token() -> re.Pattern[str]:
    """Regular expression of a token. Compiled on first use: collecting all marks takes time."""
    # Vowel signs and accents of all scripts, which `\w` does not match.
    scripts = map(chr, range(0x300, 0x1E950))
    marks = "".join(sign for sign in scripts if unicodedata.category(sign).startswith("M"))
    letter = rf"[\w\u200c\u200d{marks}]"  # Zero-width joiners occur inside words, as in Persian.
    return re.compile(
        rf"(?P<elided>(?<!\w)(?i:[ldjsncmt]|qu|jusqu|lorsqu|puisqu)['’](?={letter}))"  # l'homme
        rf"|(?P<clitic>(?<=\w)['’](?i:s|t|d|m|re|ve|ll)(?!{letter}))"  # the man's, he'll
        rf"|(?P<word>{letter}+)"
        r"|(?P<sign>\S)"
    )


def split_words(text: str) -> list[str]:
    """Split a `plain_text` into words and signs; `WordVocabulary.join` restores it.

    Words are runs of letters, marks and digits. Elided articles ("l'") and clitics ("'s") are
    separate tokens. `JOINER` marks where no space stands between two tokens.
    """
    tokens: list[str] = []
    end, before = -1, ""
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


def without_joiners(tokens: Iterable[str]) -> list[str]:
    """Tokens as shown beside an alignment; those of subwords have no joiners."""
    return [token.strip(JOINER) for token in tokens]


def capitalise(text: str) -> str:
    """Upper-case the first letter, unless that makes two letters, as in "ß"."""
    capital = text[:1].upper()
    return capital + text[1:] if len(capital) == 1 else text


def _is_capitalised(word: str) -> bool:
    return word.lower() != word == capitalise(word.lower())


_BYTE = re.compile("<0x[0-9A-F]{2}>")
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # Marks a space in a piece.
LEARNED_FROM = 500_000  # Texts: sentencepiece takes 0.6 GB for as many of 10 words.


@dataclass
class SubwordVocabulary:
    """Pieces of words, with letters and bytes as fallback, so that no text is unknown.

    `join(split(x))` is `plain_text(x, case)`, also by way of `indices` and `tokens`.

    Kudo and Richardson 2018, *SentencePiece*; Kudo 2018 (`unigram`), Sennrich et al. 2016 (`bpe`).
    model: a serialised sentencepiece model, whose special tokens are those of `Vocabulary`.
    """

    kind: ClassVar[str] = "subwords"

    model: bytes = field(repr=False)
    case: str = "keep"

    def __post_init__(self) -> None:
        from sentencepiece import SentencePieceProcessor  # Imported here: it takes time.

        self._processor = SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(self.model)

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int = 8000, case: str = "keep", method: str = "unigram"
    ) -> Self:
        """Learn `size` pieces at most from texts, of two languages for a joint vocabulary.

        Of more than `LEARNED_FROM` texts so many are drawn, always the same.
        size: with the special tokens, 256 bytes and all letters. method: `unigram` or `bpe`.
        """
        from sentencepiece import SentencePieceTrainer  # Imported here: it takes time.

        texts = list(texts)
        if len(texts) > LEARNED_FROM:
            texts = random.Random(0).sample(texts, LEARNED_FROM)
        lines = [line for text in texts if (line := plain_text(text, case))]
        written = io.BytesIO()
        special: dict[str, Any] = {}
        for index, name in enumerate(("pad", "bos", "eos", "unk")):
            special |= {f"{name}_id": index, f"{name}_piece": SPECIAL_WORDS[index]}
        try:
            SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=written,
                vocab_size=size,
                model_type=method,
                character_coverage=1.0,
                byte_fallback=True,
                normalization_rule_name="identity",
                max_sentence_length=max([4192, *(len(line.encode()) + 1 for line in lines)]),
                num_threads=1,  # More threads add up in another order.
                hard_vocab_limit=False,
                minloglevel=2,
                **special,
            )
        except (RuntimeError, OSError) as error:
            reason = str(error).strip().rpartition("] ")[2]  # Without its source position.
            raise UserError(f"cannot learn text.size {size} subwords: {reason}") from None
        return cls(written.getvalue(), case)

    def __len__(self) -> int:
        return len(self._processor)

    def split(self, text: str) -> list[str]:
        """Split a text into tokens."""
        return list(self._processor.EncodeAsPieces(plain_text(text, self.case)))

    def join(self, tokens: Iterable[str]) -> str:
        """Join tokens to a text; byte pieces of line ends become a space."""
        return plain_text(self._processor.DecodePieces(list(tokens)))

    def indices(self, tokens: Iterable[str]) -> list[int]:
        """The index of each token, or that of unknown; adds no start or end."""
        return [int(self._processor.PieceToId(token)) for token in tokens]

    def tokens(self, indices: Iterable[int]) -> list[str]:
        """The token of each index."""
        return [str(self._processor.IdToPiece(index)) for index in indices]

    def words(self, tokens: Sequence[str]) -> list[Word]:
        """Join pieces up to the next space; punctuation is a separate word.

        An apostrophe between letters belongs to their word ("d'attraper"). In scripts without
        spaces between words, every piece is a word.
        """
        units: list[list[str]] = []  # Single pieces, and runs of byte pieces.
        for is_byte, run in groupby(tokens, lambda piece: bool(_BYTE.fullmatch(piece))):
            pieces = list(run)
            units += [pieces] if is_byte else [[piece] for piece in pieces]
        kinds = "".join(_kind(unit[0], self.join(unit)) for unit in units)
        kinds = re.sub("(?<=[lL])'(?=l)", "l", kinds).replace("'", "s")
        last = len(kinds.rstrip("bB"))  # Blanks at the end belong to the last word, others
        words: list[list[str]] = []  # to the next.
        for place, unit in enumerate(units):
            before, kind = kinds[place - 1], kinds[place]
            is_start = kind.isupper() or kind in "su" or before in "sSuU"
            if not words or (is_start and before not in "bB" and place < last):
                words.append([])
            words[-1] += unit
        return [Word(self.join(word) or SPACE, len(word)) for word in words]

    def to_json(self) -> dict[str, object]:
        """The vocabulary as JSON, with its `kind` and the model in base64."""
        model = base64.b64encode(self.model).decode("ascii")
        return {"kind": self.kind, "case": self.case, "model": model}

    @classmethod
    def from_json(cls, value: JsonObject, source: str = "vocabulary") -> Self:
        """Inverse of `to_json`. source: names it in messages."""
        try:
            vocabulary = cls(base64.b64decode(value["model"], validate=True), value["case"])
        except (LookupError, RuntimeError, TypeError, ValueError):
            raise UserError(f'{source} has no "model" that sentencepiece can read') from None
        if any(map(LINE_CONTROLS.search, vocabulary.tokens(range(len(vocabulary))))):
            raise UserError(f"{source}: a piece has a control character")
        return vocabulary


def _kind(piece: str, text: str) -> str:
    """The kind of a unit of pieces as a letter, a capital if a space is before it.

    b: a blank unit. s: signs. l: letters. u: letters of scripts without spaces. An apostrophe
    stands for itself. piece: the first of the unit.
    """
    if piece in ("'", "\N{RIGHT SINGLE QUOTATION MARK}"):
        return "'"
    if re.search(f"[{UNSPACED}]", text):
        kind = "u"
    elif any(unicodedata.category(letter)[0] not in "PSZ" for letter in text):
        kind = "l"
    else:
        kind = "s" if text else "b"
    return kind.upper() if piece.startswith(SPACE) else kind


SentenceVocabulary = WordVocabulary | SubwordVocabulary
"""Of one or two languages; splits text."""


def save_vocabularies(folder: Path, source: SentenceVocabulary, target: SentenceVocabulary) -> None:
    """Write both vocabularies as JSON, atomically; the same object is written once."""
    vocabularies = {SOURCE: source, TARGET: target}
    if source is target:
        vocabularies = {VOCABULARY: source}
    for name, vocabulary in vocabularies.items():
        write_json(folder / name, vocabulary.to_json(), indent=None)


def load_vocabularies(folder: Path, joint: bool) -> tuple[SentenceVocabulary, SentenceVocabulary]:
    """Read the source's and the target's vocabulary; joint ones are the same object."""
    source = _load(folder / (VOCABULARY if joint else SOURCE))
    return source, source if joint else _load(folder / TARGET)


def _load(path: Path) -> SentenceVocabulary:
    value = read_json(path, "vocabulary")
    fields = value if isinstance(value, dict) else {}
    for kind in (WordVocabulary, SubwordVocabulary):
        if fields.get("kind") == kind.kind and fields.get("case") in CASES:
            return kind.from_json(fields, f"vocabulary {path}")
    raise UserError(f"vocabulary {path}: fields 'kind' and 'case' are of no vocabulary")
