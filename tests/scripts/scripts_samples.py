"""What the tests of the scripts share: a teacher of random weights, and how a script is run."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
CHANNELS = (32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)


def mobile_net(width: float, last: int) -> dict[str, torch.Tensor]:
    """MobileNet v1's shapes up to block `last`, with weights drawn at random.

    With the thirteenth, which is the last there is, come the classes.
    """
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * (2 / shape[1] / shape[2] / shape[3]) ** 0.5

    channels = [round(size * width) for size in CHANNELS]
    tensors = {"conv1.weight": drawn(channels[0], 3, 3, 3), "conv1.bias": torch.zeros(channels[0])}
    for block, (before, after) in enumerate(itertools.pairwise(channels[: last + 1]), start=1):
        tensors[f"depthwise{block}.weight"] = drawn(before, 1, 3, 3)
        tensors[f"depthwise{block}.bias"] = torch.zeros(before)
        tensors[f"pointwise{block}.weight"] = drawn(after, before, 1, 1)
        tensors[f"pointwise{block}.bias"] = torch.zeros(after)
    if last == 13:
        tensors["logits.weight"] = drawn(1000, channels[13], 1, 1).flatten(1)
        tensors["logits.bias"] = torch.randn(1000, generator=generator)
    return tensors


def run(folder: Path, *arguments: str) -> str:
    """What Python prints that is started in a folder; it must end well."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
