"""Whether the package works on a GPU, and how near it comes to what the GPU can do.

About ten minutes on one GPU; features and sentences are generated in COCO's sizes. First
run the tests marked `gpu`, which need the packages pytest, pytest-xdist, hypothesis and sacrebleu.
Then a table: photos, captions and tokens a second; the share of the GPU's own speed (its largest
matrix product or a copy of memory, whichever takes longer); kernels launched and the peak of memory
of one batch or step. Of translators the share counts two operations a parameter and token, six in
training. Last, configs/shapes_soft.yaml is trained, of which two CPU cores made an exact match of
0.988. A measurement that fails is reported, and the others are made.

  python scripts/gpu_acceptance.py | tee table.txt
  python scripts/gpu_acceptance.py --small    # batches of a few, also on a CPU: does it run at all

Nothing more is begun after --minutes, of which the tests have half.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import benchmark
import torch
from benchmark_machine import Machine, described
from benchmark_translation import Sizes as TranslationSizes
from benchmark_translation import Translation

from captioner.cli.program import run_program
from captioner.devices import choose_device, has_bfloat16, use_fast_kernels
from captioner.errors import UserError
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.run import train_run

ROOT = Path(__file__).resolve().parents[1]

TRANSLATORS = ("multi30k_en_de", "multi30k_en_de_bahdanau", "multi30k_en_de_gnmt")
"""Configs: a Transformer, a decoder that runs step by step, and stacked LSTMs."""


class ObservedMachine(Machine):
    """A machine that also observes the last of the works that it timed last."""

    observed = f"{'-':>10}{'-':>10}"
    """Kernels launched and peak of memory, of one unit of work, as cells of the table."""

    def seconds(self, *works: Callable[[], Any]) -> tuple[list[list[float]], list[Any]]:
        """As `Machine.seconds`."""
        found = super().seconds(*works)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            with torch.profiler.profile() as profile:
                works[-1]()
                self.wait()
            names = [event.name for event in profile.events() or ()]
            launches = sum(name.startswith(("cudaLaunchK", "cuLaunchK")) for name in names)
            memory = torch.cuda.max_memory_allocated() / 1e9
            # Where CUPTI is refused, no launches are seen.
            self.observed = f"{launches or '-':>10}{memory:>10.2f}"
        return found


@dataclass(frozen=True)
class Sizes:
    """How much is worked on at once."""

    encoding: int
    training: tuple[int, ...]
    decoding: tuple[int, ...]
    translation: TranslationSizes


FULL = Sizes(256, (80, 256), (1, 64, 512), TranslationSizes(sentences=256))
SMALL = Sizes(2, (2, 3), (1, 2), TranslationSizes(50, 4, 8, 2))

Work = tuple[str, Callable[[], Iterator[str]]]
"""A name, and a function that yields each line as soon as it is measured."""


def works(machine: ObservedMachine, sizes: Sizes) -> list[Work]:
    """The measurements, most important first; compiled steps, which may fail, behind the others."""
    device = machine.device
    return [
        ("encoding", partial(encoding, machine, sizes.encoding)),
        *((f"training, {n}", partial(training, machine, n, False)) for n in sizes.training),
        *((f"decoding, {n}", partial(decoding, machine, n)) for n in sizes.decoding),
        *((name, partial(translation, machine, name, sizes)) for name in TRANSLATORS),
        *((f"compiled, {n}", partial(training, machine, n, True)) for n in sizes.training),
        ("shapes", partial(learn_shapes, device, sizes is SMALL)),
    ]


def line(name: str, unit: str, rate: float, share: float, observed: str) -> str:
    """A line of the table. rate: of `unit` a second. share: of the GPU's own speed."""
    speed = f"{rate:,.{0 if rate >= 10 else 1}f} {unit}/s"
    return f"{name:<50}{speed:>22}{share:>8.3f}{observed}"


def line_of(machine: ObservedMachine, result: benchmark.Result, unit: str, count: int = 1) -> str:
    """A line of a result of so many units."""
    quickest = min(result.ours)
    assert result.limit is not None
    return line(result.name, unit, count / quickest, result.limit / quickest, machine.observed)


def encoding(machine: ObservedMachine, count: int) -> Iterator[str]:
    """VGG-19 on so many photos at once."""
    result = benchmark.extraction(machine, count, precision_of(machine))
    yield line_of(machine, result, "photos")


def training(machine: ObservedMachine, count: int, compiled: bool) -> Iterator[str]:
    """A step of training on so many captions."""
    step = benchmark.training(machine, count, precision_of(machine), compiled)
    yield line_of(machine, step, "captions", count)


def decoding(machine: ObservedMachine, count: int) -> Iterator[str]:
    """Beam search for so many photos at once."""
    search = benchmark.decoding(machine, count, precision_of(machine))
    yield line_of(machine, search, "captions")


def translation(machine: ObservedMachine, name: str, sizes: Sizes) -> Iterator[str]:
    """A translator's training and decoding."""
    model = Translation(machine, ROOT / "configs" / f"{name}.yaml", sizes.translation)
    precision = model.recipe.training.precision
    kind = getattr(torch, precision)
    for work, operations, measure in (
        ("training", 6, partial(model.training, kind)),
        ("decoding", 2, partial(model.decoding, sizes.translation.sentences)),
    ):
        rate = max(measure())
        share = operations * model.parameters * rate / machine.products(kind)
        yield line(f"{name}, {work}, {precision}", "tokens", rate, share, machine.observed)


def precision_of(machine: Machine) -> torch.dtype:
    """The precision of the measurements."""
    return torch.bfloat16 if has_bfloat16(machine.device) else torch.float32


def run_tests(device: torch.device, seconds: float) -> str:
    """Run the tests marked `gpu` on a device: "passed", "failed" or "not finished"."""
    texts = {path: path.read_text(encoding="utf-8") for path in ROOT.glob("tests/**/test_*.py")}
    files = sorted(str(p) for p, text in texts.items() if re.search(r"needs_gpu|mark\.gpu", text))
    # `timeout` also stops the processes that the tests start.
    command = ["timeout", str(seconds), sys.executable, "-m", "pytest", "-m", "gpu", "-n", "0"]
    tests = subprocess.run(
        [*command, "-q", "--tb=short", *files],
        cwd=ROOT,
        env={**os.environ, "GPU_TESTS_DEVICE": device.type},
        stderr=subprocess.STDOUT,
    )
    return {0: "passed", 124: "not finished"}.get(tests.returncode, "failed")


def learn_shapes(device: torch.device, small: bool) -> Iterator[str]:
    """Train configs/shapes_soft.yaml, encoder and all; the scores of the best epoch."""
    changes = ["data.shapes.train=64", "data.shapes.validation=8", "training.epochs=1"]
    with tempfile.TemporaryDirectory() as work:
        recipe = read_any_recipe(ROOT / "configs/shapes_soft.yaml", changes if small else [])
        model = train_run(recipe, Path(work) / "run", device=device)
        scores = json.loads((model / "scores.json").read_text(encoding="utf-8"))
    yield f"shapes: {', '.join(f'{name} {score:.3f}' for name, score in scores.items())}"


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="auto", help="auto, cuda or cpu")
    parser.add_argument("--small", action="store_true", help="small sizes, also on a CPU")
    parser.add_argument("--minutes", type=float, default=9, help="(default: %(default)g)")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    device = choose_device(arguments.device)
    if device.type != "cuda" and not arguments.small:
        raise UserError("there is no CUDA device here: give --small to see whether this runs")
    use_fast_kernels(device)  # As training and captioning do.
    print(described(device) + (", small sizes" if arguments.small else ""), flush=True)
    tests = run_tests(device, 60 * arguments.minutes / 2)
    print(f"tests: {tests}", flush=True)
    machine = ObservedMachine(device, 1 if arguments.small else 5)
    kinds = {"TF32" if device.type == "cuda" else "float32": torch.float32}
    if has_bfloat16(device):
        kinds["bfloat16"] = torch.bfloat16
    for name, kind in kinds.items():
        print(f"matrix products in {name}: {machine.products(kind) / 1e12:,.2f} TFLOP/s")
    print(f"copy: {machine.bandwidth() / 1e9:,.0f} GB/s")
    print(f"{'':<50}{'speed':>22}{'share':>8}{'kernels':>10}{'GB':>10}", flush=True)
    sizes = SMALL if arguments.small else FULL
    failed = False
    for name, measure in works(machine, sizes):
        if time.perf_counter() - begin >= 60 * arguments.minutes:
            print(f"from {name} on nothing was measured: {arguments.minutes:g} minutes are over")
            break
        try:
            for result in measure():
                print(result, flush=True)
        except Exception:
            failed = True
            print(f"{name} failed:\n{traceback.format_exc()}", flush=True)
    return 1 if failed or tests != "passed" else 0


if __name__ == "__main__":
    sys.exit(run_program(main, "gpu_acceptance"))
