"""One training loop for every model, with checkpoints that resume to the same numbers."""

from captioner.training.config import TrainingConfig
from captioner.training.interruption import Interrupted
from captioner.training.loop import CHECKPOINT, Batches, Trainable, Validation, train

__all__ = [
    "CHECKPOINT",
    "Batches",
    "Interrupted",
    "Trainable",
    "TrainingConfig",
    "Validation",
    "train",
]
