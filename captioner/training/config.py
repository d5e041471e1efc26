"""How a model is trained, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass

from captioner.errors import UserError
from captioner.field_checks import check_choice, check_probabilities, check_sizes


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training loop.

    epochs: passes over the training set, at most.
    batch_size: examples a step, over all processes; each takes its share of them.
    accumulate: the parts into which every process cuts its share of a step, each worked on by
        itself, so that less memory is needed; one step of the optimiser for all. The gradient is
        that of the whole batch up to rounding, but for what is drawn, which depends on the parts
        (dropout, the places of hard attention, words and captions of the model's own), and for
        batch normalisation, which sees each part by itself. So it is with the shares of several
        processes.
    optimizer: `adam`, or `rmsprop` (Graves 2013) as the authors of Xu et al. 2015 used it; see
        `captioner.training.optimizers`.
    learning_rate: of the optimiser, at its highest. weight_decay: decoupled (AdamW); of adam only.
    encoder_learning_rate: for an encoder trained along; the same as the rest by default.
    clip_norm: gradients are scaled down to this norm; 0 leaves them.
    schedule: `constant`, `cosine` (to zero after the last step), `plateau` (times `decay_factor`
        after `decay_patience` validations without a better score) or `inverse_square_root` (after
        the warm-up, as 1 / sqrt(step): Vaswani et al. 2017, equation 3).
    warmup_steps: steps over which the learning rate rises from zero.
    patience: validations without a better score after which training stops; 0 for never.
    validate_every: epochs between two validations.
    precision: `float32`, or `bfloat16` for the products (autocast).
    average: decay of an exponential moving average of the weights, which validation judges and
        which is kept as the model; 0 for none, and 0.999 is a good one. See
        `captioner.training.averaging`.
    keep_last: the models of the last so many validations are kept as well, in `models/` of the
        run's folder, for `captioner average`; 0 for none. They are what was judged: with `average`,
        moving averages themselves.
    seed: of the initial weights, the order of batches, and dropout.
    checkpoint_seconds: at most this long between two checkpoints.
    tensorboard: also write scalars, loss and learning rate every hundred steps among them, and what
        the model makes of a few validation examples, to `tensorboard` in the run's folder. Needs
        the package `tensorboard`.

    What is logged of an epoch are means over its steps, each step's over its examples. For what a
    model gives as a mean a word (`cross_entropy` of captions) these are means, over examples, of
    the means of their shares and parts, which are not weighed by their words.

    Raises `UserError` for values out of range.
    """

    epochs: int = 20
    batch_size: int = 64
    accumulate: int = 1
    optimizer: str = "adam"
    learning_rate: float = 4e-4
    encoder_learning_rate: float | None = None
    weight_decay: float = 0.0
    clip_norm: float = 5.0
    schedule: str = "plateau"
    warmup_steps: int = 0
    decay_factor: float = 0.5
    decay_patience: int = 2
    patience: int = 6
    validate_every: int = 1
    precision: str = "float32"
    average: float = 0.0
    keep_last: int = 0
    seed: int = 0
    checkpoint_seconds: float = 300.0
    tensorboard: bool = False

    def __post_init__(self) -> None:
        section = "training"
        counts = ("epochs", "batch_size", "accumulate", "validate_every", "decay_patience")
        check_sizes(section, self, *counts)
        for name in ("weight_decay", "clip_norm", "warmup_steps", "patience", "keep_last", "seed"):
            if getattr(self, name) < 0:
                raise UserError(f"training {name} {getattr(self, name)} is negative")
        if self.seed >= 2**63:
            raise UserError(f"training seed {self.seed} is not below 2 to the power of 63")
        if not self.learning_rate > 0:
            raise UserError(f"training learning_rate {self.learning_rate} is not above 0")
        if self.encoder_learning_rate is not None and not self.encoder_learning_rate > 0:
            raise UserError(
                f"training encoder_learning_rate {self.encoder_learning_rate} is not above 0"
            )
        check_probabilities(section, self, "average")
        if self.optimizer == "rmsprop" and self.weight_decay > 0:
            raise UserError("training weight_decay is of the optimizer adam, not of rmsprop")
        if not self.checkpoint_seconds >= 0:
            raise UserError(f"training checkpoint_seconds {self.checkpoint_seconds} is negative")
        if not 0 < self.decay_factor < 1:
            raise UserError(f"training decay_factor {self.decay_factor} is not between 0 and 1")
        for name, choices in (
            ("optimizer", ("adam", "rmsprop")),
            ("schedule", ("constant", "cosine", "plateau", "inverse_square_root")),
            ("precision", ("float32", "bfloat16")),
        ):
            check_choice(section, self, name, choices)
