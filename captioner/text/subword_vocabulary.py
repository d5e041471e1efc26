"""Subword vocabularies of one or two languages, learned by sentencepiece."""

from __future__ import annotations

import base64
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

from captioner.errors import UserError
from captioner.text.plain_text import CASES, plain_text
from captioner.text.vocabulary import SPECIAL_WORDS, Word

_BYTE = re.compile("<0x[0-9A-F]{2}>")

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""Marks a space in a piece."""


@dataclass
class SubwordVocabulary:
    """Pieces of words, with letters and bytes as fallback, so that no text is unknown.

    `join(split(x))` is `plain_text(x, case)`, also by way of `indices` and `tokens`.

    Kudo and Richardson 2018, *SentencePiece*; Kudo 2018 (`unigram`), Sennrich et al. 2016 (`bpe`).

    model: a serialised sentencepiece model, whose special tokens are those of `Vocabulary`.
    case: `keep` or `lower`.
    """

    kind: ClassVar[str] = "subwords"

    model: bytes = field(repr=False)
    case: str = "keep"

    def __post_init__(self) -> None:
        if self.case not in CASES:
            raise UserError(f"case {self.case!r} of subwords is not one of {', '.join(CASES)}")
        from sentencepiece import SentencePieceProcessor  # Imported here: it takes time.

        processor = SentencePieceProcessor()
        try:
            processor.LoadFromSerializedProto(self.model)
        except (RuntimeError, ValueError, TypeError):
            raise UserError("the subword model is damaged: sentencepiece cannot read it") from None
        if tuple(map(processor.IdToPiece, range(min(4, len(processor))))) != SPECIAL_WORDS:
            raise UserError(f"the subword model does not begin with {', '.join(SPECIAL_WORDS)}")
        self._processor = processor

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int = 8000, case: str = "keep", method: str = "unigram"
    ) -> SubwordVocabulary:
        """Learn pieces from texts, of two languages for a joint vocabulary. Deterministic.

        size: largest V, including the special tokens, 256 bytes and all letters.
        method: `unigram` or `bpe`.
        """
        from sentencepiece import SentencePieceTrainer  # Imported here: it takes time.

        lines = [line for text in texts if (line := plain_text(text, case).replace("\0", ""))]
        if not lines:
            raise UserError("there is no text to learn subwords from")
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
                max_sentence_length=max(4192, *(len(line.encode()) + 1 for line in lines)),
                num_threads=1,  # More threads add up in another order.
                hard_vocab_limit=False,
                minloglevel=2,
                **special,
            )
        except (RuntimeError, OSError) as error:
            reason = str(error).strip().rpartition("] ")[2]  # Without its source position.
            if least := re.search(rf"\b{size} vs (\d+)", reason):
                reason = f"special tokens, bytes and letters alone are {least[1]}"
            raise UserError(
                f"cannot learn {size} subwords from this text: {reason}; set text.size"
            ) from None
        return cls(written.getvalue(), case)

    def __len__(self) -> int:
        return len(self._processor)

    def split(self, text: str) -> list[str]:
        """Split a text into tokens."""
        pieces: list[str] = self._processor.EncodeAsPieces(plain_text(text, self.case))
        return pieces

    def join(self, tokens: Iterable[str]) -> str:
        """Join tokens to a text; byte pieces of line ends become a space."""
        return plain_text(self._processor.DecodePieces(list(tokens)))

    def indices(self, tokens: Iterable[str]) -> list[int]:
        """The index of each token, or that of unknown; adds no start or end."""
        return [int(self._processor.PieceToId(token)) for token in tokens]

    def tokens(self, indices: Iterable[int]) -> list[str]:
        """The token of each index, 0 to V - 1."""
        return [str(self._processor.IdToPiece(index)) for index in indices]

    def shown(self, tokens: Iterable[str]) -> list[str]:
        """Tokens as shown beside an alignment; `SPACE` marks a space."""
        return list(tokens)

    def words(self, tokens: Sequence[str]) -> list[Word]:
        """Join pieces up to the next space; punctuation is a separate word.

        An apostrophe between letters belongs to their word ("d'attraper"). In scripts without
        spaces between words, every piece is a word.
        """
        groups: list[list[str]] = []
        before = _BLANK
        units = [*_units(tokens)]
        kinds = [_kind(self.join(unit)) for unit in units]
        for place in range(1, len(units) - 1):
            if units[place][0] in _APOSTROPHES and not units[place + 1][0].startswith(SPACE):
                around = {kinds[place - 1], kinds[place + 1]}
                kinds[place] = _LETTERS if around == {_LETTERS} else _SIGN
        for unit, kind in zip(units, kinds, strict=True):
            starts_word = unit[0].startswith(SPACE) or {kind, before} & {_SIGN, _UNSPACED_LETTERS}
            if not groups or (starts_word and before != _BLANK):
                groups.append([])
            groups[-1] += unit
            before = kind
        if len(groups) > 1 and before == _BLANK:  # A trailing space.
            groups[-2:] = [groups[-2] + groups[-1]]
        return [Word(self.join(group) or SPACE, len(group)) for group in groups]

    def to_json(self) -> dict[str, Any]:
        """The vocabulary as JSON, with its `kind` and the model in base64."""
        model = base64.b64encode(self.model).decode("ascii")
        return {"kind": self.kind, "case": self.case, "model": model}

    @classmethod
    def from_json(cls, value: Any, source: str = "vocabulary") -> SubwordVocabulary:
        """Inverse of `to_json`. source: names it in messages."""
        model = value.get("model") if isinstance(value, dict) else None
        try:
            content = base64.b64decode(model or "", validate=True)
        except (TypeError, ValueError):
            content = b""
        if not content:
            raise UserError(f'{source} has no "model" in base64')
        try:
            return cls(content, str(value.get("case")))
        except UserError as error:
            raise UserError(f"{source} is ill-formed: {error}") from None


_BLANK, _SIGN, _LETTERS, _UNSPACED_LETTERS = "blank", "sign", "letters", "unspaced"

_APOSTROPHES = ("'", "\N{RIGHT SINGLE QUOTATION MARK}")

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # Kana, Han
)


def _units(tokens: Sequence[str]) -> Iterator[list[str]]:
    """Single pieces, and runs of byte pieces."""
    for is_byte, run in groupby(tokens, lambda piece: bool(_BYTE.fullmatch(piece))):
        if is_byte:
            yield list(run)
        else:
            yield from ([piece] for piece in run)


def _kind(text: str) -> str:
    """The kind of a text: blank, signs (punctuation, symbols), letters, or unspaced letters."""
    if not text:
        return _BLANK
    if _UNSPACED.search(text):
        return _UNSPACED_LETTERS
    signs = all(unicodedata.category(letter)[0] in "PSZ" for letter in text)
    return _SIGN if signs else _LETTERS
