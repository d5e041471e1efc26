"""Whether the package works on a GPU, and how near it comes to what the GPU can do.

About ten minutes on one GPU; features and sentences are generated in COCO's sizes. First
run the tests marked `gpu`, which need the packages pytest, pytest-xdist, hypothesis and sacrebleu.
Then photos and captions a second, with the share of the GPU's own speed (its largest matrix product
or a copy of memory, whichever takes longer), and the table of `benchmark_translation.py`. Last,
configs/shapes_soft.yaml is trained, of which two CPU cores made an exact match of 0.988. A
measurement that fails is reported, and the others are made.

  python scripts/gpu_acceptance.py | tee table.txt
  python scripts/gpu_acceptance.py --small    # batches of a few, also on a CPU: does it run at all

Nothing more is begun after --minutes, of which the tests have half.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import benchmark
import benchmark_translation
import torch
from benchmark_machine import Machine, described, has_bfloat16

from captioner.cli.program import run_program, script_parser
from captioner.devices import fast_device
from captioner.errors import UserError
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.run import train_run

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = [ROOT / f"configs/multi30k_en_de{name}.yaml" for name in ("", "_bahdanau", "_gnmt")]
"""A Transformer, a decoder that runs step by step, and stacked LSTMs."""


def works(device: torch.device, small: bool) -> dict[str, Callable[[], object]]:
    """The measurements, most important first."""
    machine = Machine(device, 1 if small else 5)
    precision = torch.bfloat16 if has_bfloat16(device) else torch.float32
    photos, steps, beams = (2, (2, 3), (1, 2)) if small else (256, (80, 256), (1, 64, 512))
    sizes = benchmark_translation.Sizes(sentences=256)
    if small:
        sizes = benchmark_translation.Sizes(50, 4, 8, 2)

    def speed(unit: str, count: int, measure: Callable[[], benchmark.Result]) -> None:
        """Print the rate of a result of so many units, and the share of the GPU's own speed."""
        result = measure()
        quickest = min(result.ours)
        assert result.limit is not None
        rate, share = count / quickest, result.limit / quickest
        print(f"{result.name:<60}{rate:>12,.1f} {unit}/s{share:>8.3f}", flush=True)

    def training(count: int) -> Callable[[], object]:
        step = partial(benchmark.training, machine, count, precision)
        return partial(speed, "captions", count, step)

    encoding = partial(benchmark.extraction, machine, photos, precision)
    found: dict[str, Callable[[], object]] = {"encoding": partial(speed, "photos", 1, encoding)}
    found |= {f"training, {count}": training(count) for count in steps}
    for count in beams:
        search = partial(benchmark.decoding, machine, count, precision)
        found[f"decoding, {count}"] = partial(speed, "captions", 1, search)
    found["translation"] = partial(benchmark_translation.report, machine, CONFIGS, sizes)
    return {**found, "shapes": partial(learn_shapes, device, small)}


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


def learn_shapes(device: torch.device, small: bool) -> None:
    """Train configs/shapes_soft.yaml, encoder and all; print the scores of the best epoch."""
    changes = ["data.shapes.train=64", "data.shapes.validation=8", "training.epochs=1"]
    with tempfile.TemporaryDirectory() as work:
        recipe = read_any_recipe(ROOT / "configs/shapes_soft.yaml", changes if small else [])
        model = train_run(recipe, Path(work) / "run", device=device)
        scores = json.loads((model / "scores.json").read_text(encoding="utf-8"))
    print(f"shapes: {', '.join(f'{name} {score:.3f}' for name, score in scores.items())}")


def main() -> int:
    """Run the program."""
    parser = script_parser(__doc__)
    parser.add_argument("--device", default="auto", help="auto, cuda or cpu")
    parser.add_argument("--small", action="store_true", help="small sizes, also on a CPU")
    parser.add_argument("--minutes", type=float, default=9, help="(default: %(default)g)")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    device = fast_device(arguments.device)  # As training and captioning have it.
    if device.type != "cuda" and not arguments.small:
        raise UserError("there is no CUDA device here: give --small to see whether this runs")
    print(described(device) + (", small sizes" if arguments.small else ""), flush=True)
    tests = run_tests(device, 60 * arguments.minutes / 2)
    print(f"tests: {tests}", flush=True)
    failed = False
    for name, measure in works(device, arguments.small).items():
        if time.perf_counter() - begin >= 60 * arguments.minutes:
            print(f"from {name} on nothing was measured: {arguments.minutes:g} minutes are over")
            break
        try:
            measure()
        except Exception:
            failed = True
            print(f"{name} failed:\n{traceback.format_exc()}", flush=True)
    return 1 if failed or tests != "passed" else 0


if __name__ == "__main__":
    sys.exit(run_program(main, "gpu_acceptance"))
