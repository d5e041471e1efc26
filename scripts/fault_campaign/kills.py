"""Kills trainings at random moments, and lets them go on to their end."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

from tally import Tally

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


def kill_trainings(folder: Path, draw: random.Random, seconds: float, tally: Tally) -> None:
    """Until the time is over: the weights after a kill must be those of a run without one."""
    config = folder / "config.yaml"
    config.write_text(CONFIG)
    end = time.monotonic() + seconds
    begun = time.monotonic()
    _train(config, folder / "whole").wait(PATIENCE)
    lasts = time.monotonic() - begun
    expected = _weights(folder / "whole")
    for number in range(10_000):
        if number and time.monotonic() > end:
            return
        run = folder / f"run {number}"
        process = _train(config, run)
        try:
            process.wait(draw.uniform(0.1, 1.0) * lasts)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        resumed = _train(config, run, "--resume")
        try:
            code = resumed.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            resumed.kill()
            resumed.wait()
            tally.count("hangs", f"{run.name} does not end")
            continue
        if code:
            tally.count("traces" if code == 1 else "lost", f"{run.name} ended with code {code}")
        elif _weights(run) != expected:
            tally.count("lost", f"{run.name} has other weights")
        else:
            tally.count("accepted", "")


def _train(config: Path, run: Path, *options: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "captioner", "train", str(config), "--out", str(run), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()
