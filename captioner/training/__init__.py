"""One training loop for every model, with checkpoints that resume to the same numbers."""

from captioner.training.checkpoint import CHECKPOINT as CHECKPOINT
from captioner.training.checkpoint import read_checkpoint as read_checkpoint
from captioner.training.config import TrainingConfig as TrainingConfig
from captioner.training.distributed import Engine as Engine
from captioner.training.log import LOG as LOG
from captioner.training.log import ShownExample as ShownExample
from captioner.training.log import summary_writer as summary_writer
from captioner.training.loop import Interrupted as Interrupted
from captioner.training.loop import Validation as Validation
from captioner.training.loop import train as train
from captioner.training.optimization import make_optimizer as make_optimizer
from captioner.training.step import Batches as Batches
from captioner.training.step import Part as Part
from captioner.training.step import seed_of as seed_of
