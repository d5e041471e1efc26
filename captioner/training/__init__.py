"""One training loop for every model, with checkpoints that resume to the same numbers."""

from captioner.training.checkpoint import check_checkpoint
from captioner.training.config import TrainingConfig
from captioner.training.distributed import Engine
from captioner.training.log import ShownExample, summary_writer
from captioner.training.loop import CHECKPOINT, LOG, Interrupted, Validation, train
from captioner.training.optimization import make_optimizer
from captioner.training.step import Batches, MicroBatch, Step, seed_of

__all__ = [
    "CHECKPOINT",
    "LOG",
    "Batches",
    "Engine",
    "Interrupted",
    "MicroBatch",
    "ShownExample",
    "Step",
    "TrainingConfig",
    "Validation",
    "check_checkpoint",
    "make_optimizer",
    "seed_of",
    "summary_writer",
    "train",
]
