"""The configs of caption decoders, and of a captioner's networks; imports no torch."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, SerializeAsAny, model_validator
from typing_extensions import Self

from captioner.models.score_config import ScoreConfig
from captioner.schema import Config, Fraction, Kinds, Size
from captioner.vision.encoder_config import EncoderConfig
from captioner.vision.preprocessing import Preprocessing


class CaptionDecoderConfig(Kinds):
    """Fields of every kind of decoder."""

    chosen_by = "kind"

    kind: str = "lstm"
    embedding_size: int
    memory_size: Size = Field(512, description="D, of an annotation vector")
    selection: Literal["soft", "hard"]
    memory_dropout: Fraction = Field(0.0, description="on whole channels of annotation vectors")
    standardise: bool = Field(
        False, description="annotation vectors to mean 0, deviation 1 over photos; not in the paper"
    )


class DecoderConfig(CaptionDecoderConfig):
    """Sizes and options of a `ShowAttendTellDecoder`."""

    kind: Literal["lstm"] = Field("lstm", description="decoder type: lstm, as in the paper")
    embedding_size: Size = Field(512, description="E, of a word's embedding")
    hidden_size: Size = Field(512, description="H, of the LSTM")
    attention_size: Size = Field(512, description="A, of the additive score")
    score: ScoreConfig = Field(default_factory=ScoreConfig)
    start_tanh: bool = Field(True, description="a tanh on the first state, h_0 and c_0")
    selection: Literal["soft", "hard"] = Field(
        "soft", description="soft: the expected annotation vector; hard: that of a drawn place"
    )
    gate: Literal["scalar", "vector", "none"] = Field(
        "scalar", description="beta, one a step (section 4.2.1) or one for each of D"
    )
    deep_output: bool = Field(
        True, description="equation 7, L_o(E y + L_h h + L_z z); without it the output sees only h"
    )
    output_tanh: bool = Field(False, description="a tanh before L_o")
    dropout: Fraction = Field(0.5, description="on embeddings, on the initial state and before L_o")
    temperature: float = Field(
        1.0, gt=0, le=1_000, description="divides attention scores; below 1 maps are narrower"
    )


class TransformerDecoderConfig(CaptionDecoderConfig):
    """Sizes and options of a `TransformerDecoder`."""

    kind: Literal["transformer"] = Field("transformer", description="decoder type: transformer")
    embedding_size: Size = Field(512, description="H of everything; even")
    heads: int = Field(8, ge=1, le=1_000, description="N, a divisor of embedding_size")
    inner_size: Size = Field(2048, description="hidden size of the feed-forward networks")
    layers: int = Field(3, ge=1, le=100, description="decoder layers")
    map_layer: int = Field(
        -1, ge=-1_000, lt=1_000, description="layer of a word's map, from 0; below 0 from the last"
    )
    selection: Literal["soft", "hard"] = Field("soft", description="soft only")
    dropout: Fraction = Field(0.1, description="on embeddings, attention weights and in the layers")

    @model_validator(mode="after")
    def _check(self) -> Self:
        size = self.embedding_size
        if size % 2 or size % self.heads:
            needed = f"not even and a multiple of {self.heads} heads"
            raise ValueError(f"embedding_size {size} is {needed}")
        if self.selection == "hard":
            raise ValueError("selection 'hard' is for kind lstm, and kind is transformer")
        if not -self.layers <= self.map_layer < self.layers:
            raise ValueError(f"map_layer {self.map_layer} is not one of the {self.layers} layers")
        return self


CaptionDecoderConfig.kinds = {"lstm": DecoderConfig, "transformer": TransformerDecoderConfig}
AnyDecoderConfig = Annotated[
    SerializeAsAny[CaptionDecoderConfig], BeforeValidator(CaptionDecoderConfig.of_kind)
]


class CaptionNetworksConfig(Config):
    """What computes captions, in `config.json`; other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    encoder: Annotated[SerializeAsAny[EncoderConfig], BeforeValidator(EncoderConfig.of_kind)]
    decoder: AnyDecoderConfig
    preprocessing: Preprocessing
