"""How a model is trained, whichever it is."""

from __future__ import annotations

from dataclasses import dataclass

from captioner.errors import UserError


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of the training loop.

    epochs: passes over the training set, at most.
    batch_size: examples a step.
    learning_rate: of Adam, at its highest. weight_decay: decoupled (AdamW).
    encoder_learning_rate: for an encoder trained along; the same as the rest by default.
    clip_norm: gradients are scaled down to this norm; 0 leaves them.
    schedule: `constant`, `cosine` (to zero after the last step) or `plateau` (times `decay_factor`
        after `decay_patience` validations without a better score).
    warmup_steps: steps over which the learning rate rises from zero.
    patience: validations without a better score after which training stops; 0 for never.
    validate_every: epochs between two validations.
    precision: `float32`, or `bfloat16` for the products (autocast).
    seed: of the initial weights, the order of batches, and dropout.
    checkpoint_seconds: at most this long between two checkpoints.

    Raises `UserError` for values out of range.
    """

    epochs: int = 20
    batch_size: int = 64
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
    seed: int = 0
    checkpoint_seconds: float = 300.0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "validate_every", "decay_patience"):
            if getattr(self, name) < 1:
                raise UserError(f"training {name} {getattr(self, name)} is not at least 1")
        for name in ("weight_decay", "clip_norm", "warmup_steps", "patience", "seed"):
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
        if not 0 < self.decay_factor < 1:
            raise UserError(f"training decay_factor {self.decay_factor} is not between 0 and 1")
        for name, choices in (
            ("schedule", ("constant", "cosine", "plateau")),
            ("precision", ("float32", "bfloat16")),
        ):
            if getattr(self, name) not in choices:
                raise UserError(
                    f"training {name} {getattr(self, name)!r} is not one of {', '.join(choices)}"
                )
