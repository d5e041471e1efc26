"""Which model: one section of a config, named for it, with its sizes and options."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import Field, model_validator
from typing_extensions import Self

from captioner.schema import Config
from captioner.translate.bahdanau import Bahdanau, BahdanauConfig
from captioner.translate.gnmt import GNMT, GNMTConfig
from captioner.translate.luong import Luong, LuongConfig
from captioner.translate.model import TranslationModel
from captioner.translate.sequence_to_sequence import SequenceToSequence, SequenceToSequenceConfig
from captioner.translate.transformer import Transformer, TransformerConfig


class TranslationModelConfig(Config):
    """A translation model: exactly one of the five families, with its config."""

    sequence_to_sequence: SequenceToSequenceConfig | None = Field(
        None, description="encoder and decoder without attention"
    )
    bahdanau: BahdanauConfig | None = Field(
        None, description="bidirectional encoder, additive attention (Bahdanau et al. 2014)"
    )
    luong: LuongConfig | None = Field(
        None, description="global or local attention on the new state (Luong et al. 2015)"
    )
    gnmt: GNMTConfig | None = Field(
        None, description="deep stacks with residual connections (Wu et al. 2016)"
    )
    transformer: TransformerConfig | None = Field(
        None, description="attention alone (Vaswani et al. 2017)"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [name for name, model in self if model is not None]
        if len(given) != 1:
            found = ", ".join(given) or "none"
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"one model of {known} should be given, found {found}")
        return self

    def make(self, source_size: int, target_size: int) -> TranslationModel:
        """The model, with weights drawn from torch's generator, for so many tokens on each side.

        Raises `UserError` where embeddings are to be tied and the sides have different tokens.
        """
        ((name, config),) = [(name, config) for name, config in self if config is not None]
        return _MODELS[name](config, source_size, target_size)


_MODELS: dict[str, Callable[..., TranslationModel]] = {
    "sequence_to_sequence": SequenceToSequence,
    "bahdanau": Bahdanau,
    "luong": Luong,
    "gnmt": GNMT,
    "transformer": Transformer,
}
