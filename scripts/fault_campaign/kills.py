"""Kills trainings at random moments, and lets them go on to their end."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from worker import Outcome

PATIENCE = 300.0
"""Seconds for a training, which takes a few."""

CONFIG = """
data: {format: shapes, shapes: {train: 64, validation: 4}}
minimum_count: 1
preprocessing: {size: 32, resize: squash}
encoder: {name: vgg11_bn, width: 0.05, weights: random, train: true}
decoder: {embedding_size: 8, hidden_size: 8, attention_size: 8}
training: {epochs: 4, batch_size: 8, patience: 0}
search: {beam: 2, maximum_length: 9}
"""


def kill_trainings(folder: Path, draw: random.Random) -> Iterator[Outcome]:
    """Kill one training after the other: its weights must be those of a run without a kill."""
    config = folder / "config.yaml"
    config.write_text(CONFIG)
    begun = time.monotonic()
    _train(config, folder / "whole").wait(PATIENCE)
    lasts = time.monotonic() - begun
    expected = _weights(folder / "whole")
    for number in itertools.count():
        run = folder / f"run {number}"
        _wait(_train(config, run), draw.uniform(0.1, 1.0) * lasts)
        code = _wait(_train(config, run, "--resume"), PATIENCE)
        if code is None:
            yield "hangs", f"{run.name} does not end"
        elif code:
            yield ("traces" if code == 1 else "lost"), f"{run.name} ended with code {code}"
        elif _weights(run) != expected:
            yield "lost", f"{run.name} has other weights"
        else:
            yield "accepted", ""


def _wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit code of a process; None if it had to be killed."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def _train(config: Path, run: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "captioner", "train", str(config), "--out", str(run), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()
