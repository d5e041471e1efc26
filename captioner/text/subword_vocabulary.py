"""Subwords of one language or of two together, by sentencepiece, learned from training text."""

from __future__ import annotations

import base64
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, ClassVar

from captioner.errors import UserError
from captioner.text.plain_text import CASES, plain_text
from captioner.text.text_vocabulary import Word
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary

METHODS = ("unigram", "bpe")

_BYTE = re.compile("<0x[0-9A-F]{2}>")

SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""What stands for a space in a piece."""


class SubwordVocabulary:
    """Pieces of words, down to letters and, for what training text never had, to bytes.

    So no text is unknown: `join(split(x))`, and the same with `indices` and `tokens` in between,
    is `plain_text(x, case)`.

    Kudo and Richardson 2018, *SentencePiece*; Kudo 2018 (`unigram`), Sennrich et al. 2016 (`bpe`).
    """

    kind: ClassVar[str] = "subwords"

    def __init__(self, model: bytes, case: str = "keep") -> None:
        """Take a model as sentencepiece writes it.

        Raises `UserError` when it is none, or has other special tokens than `Vocabulary`, and for
        a case that is not `keep` or `lower`.
        """
        if case not in CASES:
            raise UserError(f"case {case!r} of subwords is not one of {', '.join(CASES)}")
        processor = _sentencepiece().SentencePieceProcessor()
        try:
            processor.LoadFromSerializedProto(model)
        except (RuntimeError, ValueError, TypeError):
            raise UserError("the subword model is damaged: sentencepiece cannot read it") from None
        special = [processor.IdToPiece(index) for index in range(min(4, len(processor)))]
        if tuple(special) != SPECIAL_WORDS:
            raise UserError(
                f"the subword model begins with {', '.join(special)}, "
                f"not {', '.join(SPECIAL_WORDS)}"
            )
        self.model = model
        self.case = case
        self._processor = processor

    @classmethod
    def learn(
        cls, texts: Iterable[str], size: int = 8000, case: str = "keep", method: str = "unigram"
    ) -> SubwordVocabulary:
        """Learn pieces from texts; from those of two languages for a joint vocabulary.

        size: V, at most: the special tokens, 256 bytes and all letters are among them. The same
        texts in the same order give the same pieces.
        Raises `UserError` for a size that the texts cannot fill or that does not hold their
        letters, and for no text.
        """
        if method not in METHODS:
            raise UserError(f"method {method!r} of subwords is not one of {', '.join(METHODS)}")
        if case not in CASES:
            raise UserError(f"case {case!r} of subwords is not one of {', '.join(CASES)}")
        lines = [line for text in texts if (line := plain_text(text, case).replace("\0", ""))]
        if not lines:
            raise UserError("there is no text to learn subwords from")
        written = io.BytesIO()
        try:
            _sentencepiece().SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=written,
                vocab_size=size,
                model_type=method,
                character_coverage=1.0,
                byte_fallback=True,
                normalization_rule_name="identity",
                max_sentence_length=max(4192, *(len(line.encode()) + 1 for line in lines)),
                num_threads=1,  # More would add up in another order.
                hard_vocab_limit=False,
                pad_id=Vocabulary.pad,
                bos_id=Vocabulary.start,
                eos_id=Vocabulary.end,
                unk_id=Vocabulary.unknown,
                pad_piece=SPECIAL_WORDS[Vocabulary.pad],
                bos_piece=SPECIAL_WORDS[Vocabulary.start],
                eos_piece=SPECIAL_WORDS[Vocabulary.end],
                unk_piece=SPECIAL_WORDS[Vocabulary.unknown],
                minloglevel=2,
            )
        except (RuntimeError, OSError) as error:
            reason = str(error).strip().rpartition("] ")[2]  # Behind the place in its source.
            if least := re.search(rf"\b{size} vs (\d+)", reason):
                reason = f"special tokens, bytes and its letters alone are {least[1]}"
            raise UserError(f"cannot learn {size} subwords from this text: {reason}") from None
        return cls(written.getvalue(), case)

    def __len__(self) -> int:
        """V, the special tokens and bytes included."""
        return len(self._processor)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SubwordVocabulary) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.model, self.case))

    @property
    def complete(self) -> bool:
        """Whether there are pieces for bytes, as there are in all that `learn` gives."""
        return bool(self._processor.IsByte(self._processor.PieceToId("<0x00>")))

    def split(self, text: str) -> list[str]:
        """See `TextVocabulary.split`."""
        pieces: list[str] = self._processor.EncodeAsPieces(plain_text(text, self.case))
        return pieces

    def join(self, tokens: Iterable[str]) -> str:
        """See `TextVocabulary.join`. Of pieces for the bytes of line ends, a space is made."""
        return plain_text(self._processor.DecodePieces(list(tokens)))

    def indices(self, tokens: Iterable[str]) -> list[int]:
        """See `TextVocabulary.indices`."""
        return [int(self._processor.PieceToId(token)) for token in tokens]

    def tokens(self, indices: Iterable[int]) -> list[str]:
        """See `TextVocabulary.tokens`."""
        found = []
        for index in indices:
            if not 0 <= index < len(self):
                raise ValueError(f"index {index} is not in 0 to {len(self) - 1}")
            found.append(str(self._processor.IdToPiece(index)))
        return found

    def shown(self, tokens: Iterable[str]) -> list[str]:
        """Pieces as they are: a low bar stands for a space before them."""
        return list(tokens)

    def words(self, tokens: Sequence[str]) -> list[Word]:
        """Pieces up to the next space; signs are apart from letters and digits, as in "dog" ".".

        In scripts that put no spaces between words, every piece is taken for one.
        """
        groups: list[list[str]] = []
        before = _BLANK
        for unit in _units(tokens):
            kind = _kind(self.join(unit))
            apart = unit[0].startswith(SPACE) or {kind, before} & {_SIGN, _WITHOUT_SPACES}
            if not groups or (apart and before != _BLANK):
                groups.append([])
            groups[-1] += unit
            before = kind
        if len(groups) > 1 and before == _BLANK:  # A space behind the last word.
            groups[-2:] = [groups[-2] + groups[-1]]
        return [Word(self.join(group) or SPACE, len(group)) for group in groups]

    def to_json(self) -> dict[str, Any]:
        """See `TextVocabulary.to_json`. The model is in base64."""
        model = base64.b64encode(self.model).decode("ascii")
        return {"kind": self.kind, "case": self.case, "model": model}

    @classmethod
    def from_json(cls, value: Any, source: str = "vocabulary") -> SubwordVocabulary:
        """The vocabulary of which `value` is the `to_json`; `UserError` when it is ill-formed."""
        model = value.get("model") if isinstance(value, dict) else None
        try:
            content = base64.b64decode(model or "", validate=True)
        except (TypeError, ValueError):
            content = b""
        if not content:
            raise UserError(f'{source} has no "model" in base64')
        _sentencepiece()  # If it is missing, that is no fault of the vocabulary.
        try:
            return cls(content, str(value.get("case")))
        except UserError as error:
            raise UserError(f"{source} is ill-formed: {error}") from None


_BLANK, _SIGN, _LETTERS, _WITHOUT_SPACES = "blank", "sign", "letters", "without spaces"

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # Kana, Han
)


def _units(tokens: Sequence[str]) -> Iterator[list[str]]:
    """Pieces one by one, but for those of bytes: a run of them is read together."""
    for is_byte, run in groupby(tokens, lambda piece: bool(_BYTE.fullmatch(piece))):
        if is_byte:
            yield list(run)
        else:
            yield from ([piece] for piece in run)


def _kind(text: str) -> str:
    """What a text is: nothing, signs alone (punctuation, symbols), or with letters or digits.

    Letters of a script that puts no spaces between words are a kind of their own.
    """
    if not text:
        return _BLANK
    if _UNSPACED.search(text):
        return _WITHOUT_SPACES
    signs = all(unicodedata.category(letter)[0] in "PSZ" for letter in text)
    return _SIGN if signs else _LETTERS


def _sentencepiece() -> Any:
    """The package. Raises `UserError` when it is missing."""
    try:
        import sentencepiece  # Imported here: it takes time.
    except ImportError:
        raise UserError(
            "subwords need the package sentencepiece: pip install sentencepiece"
        ) from None
    return sentencepiece
