"""Which model: one section of a config, named for it, with its sizes and options."""

from __future__ import annotations

from dataclasses import dataclass, fields

from captioner.errors import UserError
from captioner.translate.bahdanau import Bahdanau, BahdanauConfig
from captioner.translate.gnmt import GNMT, GNMTConfig
from captioner.translate.luong import Luong, LuongConfig
from captioner.translate.model import TranslationModel
from captioner.translate.sequence_to_sequence import SequenceToSequence, SequenceToSequenceConfig
from captioner.translate.transformer import Transformer, TransformerConfig


@dataclass(frozen=True)
class TranslationModelConfig:
    """A translation model: exactly one of the five families, with its config.

    Raises `UserError` where none or several are given.
    """

    sequence_to_sequence: SequenceToSequenceConfig | None = None
    bahdanau: BahdanauConfig | None = None
    luong: LuongConfig | None = None
    gnmt: GNMTConfig | None = None
    transformer: TransformerConfig | None = None

    def __post_init__(self) -> None:
        names = [field.name for field in fields(self)]
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise UserError(f"one model of {', '.join(names)} should be given, found {found}")

    def make(self, source_size: int, target_size: int) -> TranslationModel:
        """The model, with weights drawn from torch's generator, for so many tokens on each side.

        Raises `UserError` where embeddings are to be tied and the sides have different tokens.
        """
        sizes = source_size, target_size
        if self.sequence_to_sequence is not None:
            return SequenceToSequence(self.sequence_to_sequence, *sizes)
        if self.bahdanau is not None:
            return Bahdanau(self.bahdanau, *sizes)
        if self.luong is not None:
            return Luong(self.luong, *sizes)
        if self.gnmt is not None:
            return GNMT(self.gnmt, *sizes)
        assert self.transformer is not None
        return Transformer(self.transformer, *sizes)
