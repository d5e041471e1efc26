"""The configs of translation models; imports no torch."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self

from captioner.models.score_config import ScoreName
from captioner.schema import Config, Fraction, Length, Size

Tie = Annotated[
    Literal["none", "target", "all"],
    Field(description="target: output and target embeddings are one matrix; all: source too"),
]


class RecurrentConfig(Config):
    """Sizes and options of a recurrent model."""

    embedding_size: Size = Field(512, description="E, of a token's embedding")
    hidden_size: Size = Field(512, description="H, of every recurrent layer")
    tie_embeddings: Tie = "none"
    scale_embeddings: bool = Field(False, description="by sqrt(E), of use where they are tied")
    dropout: Fraction = Field(0.3, description="on embeddings, between layers, before the output")


Cell = Annotated[Literal["lstm", "gru"], Field(description="kind of recurrent cell")]
AttentionSize = Annotated[Size, Field(description="A, of the additive score")]
Layers = Annotated[int, Field(ge=1, le=1_000, description="of the encoder, and of the decoder")]


class SequenceToSequenceConfig(RecurrentConfig):
    """Sizes and options of a `SequenceToSequence`.

    Sutskever et al. 2014, *Sequence to Sequence Learning with Neural Networks*, have LSTMs and a
    reversed source; Cho et al. 2014 have GRUs.
    """

    cell: Cell = "lstm"
    layers: Layers = 2
    reverse_source: bool = Field(True, description="read the source backwards (section 3.3)")


class BahdanauConfig(RecurrentConfig):
    """Sizes and options of a `Bahdanau` model.

    Bahdanau et al. 2014, *Neural Machine Translation by Jointly Learning to Align and Translate*,
    has E 620, H and A 1000, an output layer of 500 and no dropout.
    """

    hidden_size: Size = Field(512, description="H, of the decoder's GRU and of each direction's")
    attention_size: AttentionSize = 512
    output_size: Size = Field(512, description="of the maxout layer")
    output_state: Literal["previous", "new"] = Field(
        "previous", description="which state the output layer reads: s_(i-1), A.2.2, or s_i, eq. 4"
    )


class LuongConfig(RecurrentConfig):
    """Sizes and options of a `Luong` model.

    Luong et al. 2015, *Effective Approaches to Attention-based Neural Machine Translation*, has
    LSTMs, sizes of 1000, 4 layers, one direction, a window of 10 and dropout 0.2.
    """

    cell: Cell = "lstm"
    layers: Layers = 2
    bidirectional: bool = Field(False, description="read the source both ways, H / 2 each")
    score: ScoreName = "general"
    attention_size: Size = Field(512, description="A, of the scores additive and concat")
    attention: Literal["global", "local-m", "local-p"] = Field(
        "global", description="local-m: around the token of the same number; -p: a predicted one"
    )
    window: Length = Field(10, description="D of local attention, which covers 2 D + 1 tokens")
    input_feeding: bool = Field(True, description="feed h~ into the next step, section 3.3")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.bidirectional and self.hidden_size % 2:
            raise ValueError(f"hidden_size {self.hidden_size} is odd: a direction has half of it")
        return self


class GNMTConfig(RecurrentConfig):
    """Sizes and options of a `GNMT` model.

    Wu et al. 2016, *Google's Neural Machine Translation System*, has sizes of 1024 and 8 layers.
    """

    attention_size: AttentionSize = 512
    layers: int = Field(4, ge=2, le=100, description="of the encoder, and of the decoder")
    residual_from: int = Field(3, ge=3, le=100, description="lowest layer, from 1, with a residual")


class TransformerConfig(Config):
    """Sizes and options of a `Transformer`."""

    embedding_size: Size = Field(512, description="H of everything, d_model of the paper; even")
    heads: int = Field(8, ge=1, le=1_000, description="N, a divisor of embedding_size")
    inner_size: Size = Field(2048, description="of the feed-forward networks")
    encoder_layers: int = Field(6, ge=1, le=100, description="layers of the encoder")
    decoder_layers: int = Field(6, ge=1, le=100, description="layers of the decoder")
    norm_first: bool = Field(True, description="pre-norm (needs no warm-up), else post-norm")
    final_norm: bool = Field(True, description="behind each stack; for pre-norm, not in the paper")
    tie_embeddings: Tie = "target"
    dropout: Fraction = Field(0.1, description="on embeddings and on each sublayer's output")
    inner_dropout: float | None = Field(
        None, ge=0, lt=1, description="on attention weights and in the networks; null: as dropout"
    )
    alignment_layer: int = Field(
        -1, ge=-1_000, lt=1_000, description="decoder layer of the alignment, from 0; -1: the last"
    )
    alignment_head: int | None = Field(
        None, ge=0, lt=1_000, description="one head of that layer; the mean of all by default"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        size, heads, layers = self.embedding_size, self.heads, self.decoder_layers
        if size % 2 or size % heads:
            raise ValueError(f"embedding_size {size} is odd or not divisible among {heads} heads")
        if not -layers <= self.alignment_layer < layers:
            wrong = f"alignment_layer {self.alignment_layer}"
            raise ValueError(f"{wrong} is not one of {layers} decoder layers, counted from 0")
        if (self.alignment_head or 0) >= heads:
            wrong = f"alignment_head {self.alignment_head}"
            raise ValueError(f"{wrong} is not one of {heads} heads, counted from 0")
        return self


NO_HEADS = "an alignment layer or head needs a Transformer, which this is not"


class TranslationModelConfig(Config):
    """A translation model: exactly one of the five families, with its config."""

    sequence_to_sequence: SequenceToSequenceConfig | None = Field(
        None, description="without attention (Sutskever et al. 2014)"
    )
    bahdanau: BahdanauConfig | None = Field(None, description="additive (Bahdanau 2014)")
    luong: LuongConfig | None = Field(None, description="global or local (Luong 2015)")
    gnmt: GNMTConfig | None = Field(None, description="deep stacks (Wu et al. 2016)")
    transformer: TransformerConfig | None = Field(None, description="Vaswani et al. 2017")

    @model_validator(mode="after")
    def _check(self) -> Self:
        names = [name for name, config in self if config is not None]
        if len(names) != 1:
            known = ", ".join(type(self).model_fields)
            found = ", ".join(names) or "none"
            raise ValueError(f"one model of {known} should be given, found {found}")
        return self

    @property
    def family(self) -> str:
        """The name of the family's field."""
        return next(name for name, config in self if config is not None)

    @property
    def attends(self) -> bool:
        """Whether the model has attention, and so alignments."""
        return self.sequence_to_sequence is None


class TranslationNetworksConfig(Config):
    """What computes translations, in `config.json`; other fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    model: TranslationModelConfig
    joint_vocabulary: bool
