"""What the tests that need a GPU share.

GPU_TESTS_DEVICE=cpu runs them on the CPU, to check the tests themselves.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import nn
from training.training_samples import trainer_of

from captioner.training.config import TrainingConfig

DEVICE = torch.device(os.environ.get("GPU_TESTS_DEVICE", "cuda"))

needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE.type == "cuda" and not torch.cuda.is_available(), reason="there is no CUDA device"
    ),
]

precisions = pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])


@contextmanager
def exact_products() -> Iterator[None]:
    """Within it, a GPU multiplies in float32, without TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def losses_of_ten_steps(loss: nn.Module, batch: Any, precision: str) -> tuple[float, float]:
    """Train on one batch as a run does: the loss of the first step and of the last."""
    config = TrainingConfig(learning_rate=0.01, precision=precision)  # type: ignore[arg-type]
    losses = []
    with TemporaryDirectory() as folder:
        trainer = trainer_of(loss, config, Path(folder))
        for _ in range(10):
            trainer.step([batch])
            losses.append(float(trainer.reports.last_loss))
        trainer.reports.sums()
    return losses[0], losses[-1]
