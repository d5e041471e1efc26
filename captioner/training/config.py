"""The settings of the training loop, the same for every model."""

from typing import Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from captioner.schema import COUNT, Fraction, Section, Seed, Size


class TrainingConfig(Section):
    """Settings of the training loop.

    With parts or processes the gradient is that of the whole batch up to rounding, except for
    random draws, batch normalisation and hard attention's baseline, which see each part alone.
    """

    epochs: int = Field(20, ge=1, le=1_000_000, description="maximum number of epochs")
    batch_size: Size = Field(64, description="examples a step, over all processes")
    accumulate: Size = Field(1, description="smaller batches a step and process, for less memory")
    optimizer: Literal["adam", "rmsprop"] = "adam"
    """rmsprop (Graves 2013) as the authors of Xu et al. 2015 used it"""
    learning_rate: float = Field(4e-4, gt=0, le=1e38, description="peak learning rate")
    encoder_learning_rate: float | None = Field(None, gt=0, le=1e38)
    """of a trained encoder; by default learning_rate"""
    weight_decay: float = Field(0.0, ge=0, le=1_000)
    """AdamW's; none for biases, normalisation and embeddings"""
    clip_norm: float = Field(5.0, ge=0, le=1e9, description="maximum gradient norm; 0: no clipping")
    schedule: Literal["constant", "cosine", "plateau", "inverse_square_root"] = "plateau"
    """learning rate: cosine falls to zero after the last step, plateau multiplies by decay_factor
    after decay_patience validations without a better model, inverse_square_root is that of Vaswani
    et al. 2017, equation 3"""
    warmup_steps: int = Field(0, ge=0, le=COUNT, description="steps of linear warm-up")
    decay_factor: float = Field(0.5, gt=0, lt=1, description="for the schedule plateau")
    decay_patience: int = Field(2, ge=1, le=1_000_000, description="for the schedule plateau")
    patience: int = Field(6, ge=0, le=1_000_000)
    """validations without a better model before early stopping; 0: never. Of equal scores, that of
    the lower perplexity is better"""
    validate_every: int = Field(1, ge=1, le=1_000_000, description="epochs between two validations")
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """float32 (TF32 on CUDA), or autocast to bfloat16, slow on a CPU without instructions for it,
    or float16, with scaled gradients, for GPUs without bfloat16"""
    average: Fraction = Field(0.0, description="decay of averaged weights; 0: none, 0.999: good")
    seed: Seed = Field(0, description="for initial weights, batches and dropout")
    checkpoint_seconds: float = Field(300.0, ge=0, le=1e9, description="between two checkpoints")
    tensorboard: bool = False
    """also log to tensorboard/ of the run, with captions and maps of the first eight validation
    photos; needs the package tensorboard"""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.optimizer == "rmsprop" and self.weight_decay > 0:
            raise ValueError("weight_decay is of the optimizer adam, not of rmsprop")
        return self
