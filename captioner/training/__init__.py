"""One training loop for every model, with checkpoints that resume to the same numbers."""

from captioner.training.checkpoint import CHECKPOINT, read_checkpoint
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Engine
from captioner.training.log import LOG, ShownExample, summary_writer
from captioner.training.loop import Interrupted, Validation, train
from captioner.training.optimization import make_optimizer
from captioner.training.step import Batches, Part, seed_of

__all__ = [
    "CHECKPOINT",
    "LOG",
    "Batches",
    "Engine",
    "Interrupted",
    "Part",
    "ShownExample",
    "TrainingConfig",
    "Validation",
    "make_optimizer",
    "read_checkpoint",
    "seed_of",
    "summary_writer",
    "train",
]
