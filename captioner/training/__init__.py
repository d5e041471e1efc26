"""One training loop for every model, with checkpoints that resume to the same numbers."""

from captioner.training.batches import Batches, Part, SharedBatches, Step
from captioner.training.checkpoint import check_checkpoint
from captioner.training.config import TrainingConfig
from captioner.training.engine import Engine
from captioner.training.interruption import Interrupted
from captioner.training.loop import CHECKPOINT, Trainable, Validation, train
from captioner.training.tensorboard import ShownExample, summary_writer

__all__ = [
    "CHECKPOINT",
    "Batches",
    "Engine",
    "Interrupted",
    "Part",
    "SharedBatches",
    "ShownExample",
    "Step",
    "Trainable",
    "TrainingConfig",
    "Validation",
    "check_checkpoint",
    "summary_writer",
    "train",
]
