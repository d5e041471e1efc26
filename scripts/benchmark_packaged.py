"""How long the packaged model takes: one photo, warm, and loading it in a fresh Python.

The photo is the demo photo, read, preprocessed and captioned by the model's own search, after two
that warm up. Loading is timed by a Python that has imported torch and nothing else, from `import
captioner` to the model; on the CPU. The median and the largest of --repeat times each, beside the
limits, which are of two cores.

  OMP_NUM_THREADS=2 python scripts/benchmark.py --only packaged --repeat 20
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark_machine import Machine

import captioner
from captioner.demo import DEMO_PHOTO

PHOTO_LIMIT, LOADING_LIMIT = 0.15, 0.1
"""Seconds."""

WARM_UP = 2
LOADING = """\
import time, torch
begin = time.perf_counter()
import captioner
captioner.load()
print(time.perf_counter() - begin)
"""


@dataclass(frozen=True)
class Timing:
    """What was timed so many times: the median, the largest and the limit, in seconds."""

    name: str
    median: float
    largest: float
    limit: float
    times: int


def one_photo(machine: Machine) -> Timing:
    """From a file to its caption, by a model that has captioned already."""
    model = captioner.load(device=machine.device)

    def seconds() -> float:
        machine.wait()
        begin = time.perf_counter()
        model.caption([DEMO_PHOTO])
        machine.wait()
        return time.perf_counter() - begin

    for _ in range(WARM_UP):
        seconds()
    return timing("one photo, warm", PHOTO_LIMIT, machine.repeat, seconds)


def loading(machine: Machine) -> Timing:
    """The model in a Python of its own, behind `import torch`."""

    def seconds() -> float:
        done = subprocess.run(
            [sys.executable, "-c", LOADING],
            cwd=Path(captioner.__file__).resolve().parents[1],  # This very package.
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return float(done.stdout)

    return timing("loading it, after import torch", LOADING_LIMIT, machine.repeat, seconds)


def timing(name: str, limit: float, times: int, seconds: Callable[[], float]) -> Timing:
    """Time something again and again. seconds: does it, and says how long it took."""
    found = [seconds() for _ in range(times)]
    return Timing(name, statistics.median(found), max(found), limit, times)


def report(machine: Machine) -> Sequence[Timing]:
    """Measure and print."""
    print(f"{'the packaged model, seconds':<38}{'median':>8}{'largest':>9}{'limit':>8}{'of':>5}")
    results = []
    for measure in (one_photo, loading):
        found = measure(machine)
        print(
            f"{found.name:<38}{found.median:>8.3f}{found.largest:>9.3f}"
            f"{found.limit:>8.3f}{found.times:>5}",
            flush=True,
        )
        results.append(found)
    return results
