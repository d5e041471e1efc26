"""One training loop for every model, with checkpoints that resume to the same numbers."""

from captioner.training.batches import Batches, Part, Step, seed_of
from captioner.training.checkpoint import check_checkpoint
from captioner.training.config import TrainingConfig
from captioner.training.engine import Engine
from captioner.training.interruption import Interrupted
from captioner.training.memory_limit import check_memory
from captioner.training.optimizers import make_optimizer
from captioner.training.tensorboard import ShownExample, summary_writer
from captioner.training.training_loop import CHECKPOINT, LOG, Validation, train

__all__ = [
    "CHECKPOINT",
    "LOG",
    "Batches",
    "Engine",
    "Interrupted",
    "Part",
    "ShownExample",
    "Step",
    "TrainingConfig",
    "Validation",
    "check_checkpoint",
    "check_memory",
    "make_optimizer",
    "seed_of",
    "summary_writer",
    "train",
]
