"""Subword vocabularies of one or two languages, learned by sentencepiece."""

from __future__ import annotations

import base64
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, pairwise
from typing import Any, ClassVar

from captioner.errors import UserError
from captioner.text.plain_text import plain_text
from captioner.text.vocabulary import SPECIAL_WORDS, Word

_BYTE = re.compile("<0x[0-9A-F]{2}>")
SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # Marks a space in a piece.


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
        from sentencepiece import SentencePieceProcessor  # Imported here: it takes time.

        self._processor = SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(self.model)

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
            if least := re.search(rf"\b{size} vs (\d+)", reason):
                reason = f"special tokens, bytes and letters alone are {least[1]}"
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
        ends = [match.start() for match in _WORD_END.finditer(kinds)]
        parts = (units[start:end] for start, end in pairwise([0, *ends]))
        groups = (list(chain.from_iterable(part)) for part in parts)
        return [Word(self.join(group) or SPACE, len(group)) for group in groups]

    def to_json(self) -> dict[str, Any]:
        """The vocabulary as JSON, with its `kind` and the model in base64."""
        model = base64.b64encode(self.model).decode("ascii")
        return {"kind": self.kind, "case": self.case, "model": model}

    @classmethod
    def from_json(cls, value: Any, source: str = "vocabulary") -> SubwordVocabulary:
        """Inverse of `to_json`. source: names it in messages."""
        try:
            return cls(base64.b64decode(value["model"], validate=True), value["case"])
        except (LookupError, RuntimeError, TypeError, ValueError):
            raise UserError(f'{source} has no "model" that sentencepiece can read') from None


_WORD_END = re.compile(r"(?<=[^bB])((?=[A-Zsu])|(?<=[sSuU]))(?![bB]*$)|$(?!^)")
"""Before a space, beside a sign or an unspaced letter; blanks belong to the next or last word."""
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # Kana, Han
)


def _kind(piece: str, text: str) -> str:
    """A letter: b for a blank unit, s for signs, l for letters, u for letters of scripts without
    spaces, or an apostrophe; a capital if a space is before it. piece: the first of the unit."""
    if piece in ("'", "\N{RIGHT SINGLE QUOTATION MARK}"):
        return "'"
    kind = "b"
    if _UNSPACED.search(text):
        kind = "u"
    elif text:  # Of punctuation and symbols only, or not.
        kind = "s" if all(unicodedata.category(letter)[0] in "PSZ" for letter in text) else "l"
    return kind.upper() if piece.startswith(SPACE) else kind
