"""Whether the package works on a GPU, and how near it comes to what the GPU can do.

One command, about ten minutes on one GPU; photos, features and sentences are generated in COCO's
sizes. First the tests marked `gpu`, which need the packages pytest, pytest-xdist, hypothesis and
sacrebleu.
Then a table: photos, captions, images and tokens a second; the share of the time that the GPU
itself needs, for its largest matrix product or a copy of memory, whichever takes longer; kernels
launched and the peak of memory, of one unit of work (a batch or a step). Of translators the share
counts two operations a parameter and token, six in training. With time left, models are trained:
configs/shapes_soft.yaml, of which two CPU cores made an exact match of 0.988, and, where there are
its photos, configs/flickr8k_small_soft.yaml, of which they made a CIDEr-D of 0.471.

  python scripts/gpu_acceptance.py --json table.json
  python scripts/gpu_acceptance.py --small

A measurement that fails is reported, and the others are made. FILE of --json is written after each
line.
--flickr8k: folder of the photos `images` and of Flickr8k.token.txt, train.txt and val.txt; by
  default shared/data/flickr8k beside the repository, where there is one.
--minutes: after them nothing more is begun, and the program says so; the tests have half of them.
--small: batches of a few, also on a CPU, where kernels and memory are not counted and the tests run
  on it: whether the program and the tests run.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import benchmark
import benchmark_translation
import numpy
import torch
from benchmark_machine import Machine, described
from PIL import Image

from captioner.cli.output_files import check_outputs
from captioner.cli.program import run_program
from captioner.devices import choose_device, has_bfloat16
from captioner.errors import UserError
from captioner.files import write_json
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.feature_extraction import fill_stores
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.train_run import train_run
from captioner.schema import from_mapping
from captioner.training import Engine

ROOT = Path(__file__).resolve().parents[1]

FLICKR8K = ROOT.parent / "shared/data/flickr8k"

TRANSLATORS = ("multi30k_en_de", "multi30k_en_de_bahdanau", "multi30k_en_de_gnmt")
"""Configs: a Transformer, a decoder that runs step by step, and stacked LSTMs."""


@dataclass(frozen=True)
class Observed:
    """Kernels launched and peak of memory in bytes, of one unit of work; None on a CPU."""

    launches: int | None = None
    memory: int | None = None


@dataclass(frozen=True)
class ObservedMachine(Machine):
    """A machine that also observes the last of the works that it times."""

    observed: list[Observed] = field(default_factory=list, compare=False)

    def seconds(self, *works: Callable[[], Any]) -> tuple[list[list[float]], list[Any]]:
        """As `Machine.seconds`."""
        found = super().seconds(*works)
        self.observed.append(observe(self.device, works[-1]))
        return found


def observe(device: torch.device, work: Callable[[], Any]) -> Observed:
    """Count kernels and memory of a piece of work."""
    if device.type != "cuda":
        return Observed()
    torch.cuda.reset_peak_memory_stats(device)
    work()
    memory = torch.cuda.max_memory_allocated(device)
    kinds = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        work()
        torch.cuda.synchronize(device)
    names = [event.name for event in profile.events() or ()]
    launches = sum(name.startswith(("cudaLaunchKernel", "cuLaunchKernel")) for name in names)
    return Observed(launches or None, memory)  # Where CUPTI is refused, none are seen.


@dataclass(frozen=True)
class Sizes:
    """How much is worked on at once."""

    photos: int = 2048
    encoded: int = 256
    training: tuple[int, ...] = (80, 256)
    decoding: tuple[int, ...] = (1, 64, 512)
    translation: benchmark_translation.Sizes = field(
        default_factory=partial(benchmark_translation.Sizes, None, 16, None, 256)
    )


SMALL = Sizes(4, 2, (2, 3), (1, 2), benchmark_translation.Sizes(50, 4, 8, 2))


@dataclass(frozen=True)
class Row:
    """A line of the table. rate: of `unit` a second. share: of the GPU's own speed."""

    name: str
    unit: str
    rate: float
    share: float
    launches: int | None
    memory: int | None

    def __str__(self) -> str:
        launches = "-" if self.launches is None else f"{self.launches:,}"
        memory = "-" if self.memory is None else f"{self.memory / 1e9:.2f}"
        rate = f"{self.rate:,.{0 if self.rate >= 10 else 1}f} {self.unit}/s"
        return f"{self.name:<50}{rate:>22}{self.share:>8.3f}{launches:>10}{memory:>10}"


@dataclass(frozen=True)
class Learned:
    """Scores of a trained model. scores: on the validation set, at the best epoch."""

    name: str
    scores: dict[str, float]

    def __str__(self) -> str:
        return f"{self.name}: {', '.join(f'{k} {v:.3f}' for k, v in self.scores.items())}"


Work = tuple[str, Callable[[], Iterator[Row | Learned]]]
"""A name, and a function that yields each result as soon as it is measured."""


def works(machine: ObservedMachine, sizes: Sizes, flickr8k: Path | None) -> list[Work]:
    """The measurements, most important first; compiled steps, which may fail, behind the others."""
    small, device = sizes is SMALL, machine.device
    return [
        ("encoding", partial(encoding, machine, sizes)),
        *((f"training, {n}", partial(training, machine, n, False)) for n in sizes.training),
        *((f"decoding, {n}", partial(decoding, machine, n)) for n in sizes.decoding),
        *((name, partial(translation, machine, name, sizes)) for name in TRANSLATORS),
        *((f"compiled, {n}", partial(training, machine, n, True)) for n in sizes.training),
        ("shapes", partial(learn_shapes, device, small)),
        *([("Flickr8k", partial(learn_flickr8k, flickr8k, device))] if flickr8k else []),
    ]


def encoding(machine: ObservedMachine, sizes: Sizes) -> Iterator[Row]:
    """VGG-19 on photos in memory, and on files."""
    result = benchmark.extraction(machine, sizes.encoded, _kind(machine))
    yield _row(machine, result, "photos", 1)
    yield features_of_files(machine, sizes.photos, sizes.encoded, result.limit)


def training(machine: ObservedMachine, count: int, compiled: bool) -> Iterator[Row]:
    """A step of training on so many captions."""
    step = benchmark.training(machine, count, _kind(machine), compiled)
    yield _row(machine, step, "captions", count)


def decoding(machine: ObservedMachine, count: int) -> Iterator[Row]:
    """Beam search for so many photos at once."""
    yield _row(machine, benchmark.decoding(machine, count, _kind(machine)), "captions", 1)


def translation(machine: ObservedMachine, name: str, sizes: Sizes) -> Iterator[Row]:
    """A translator's training and decoding."""
    config = ROOT / "configs" / f"{name}.yaml"
    precision = read_any_recipe(config).training.precision
    products = machine.products(getattr(torch, precision))
    speed = benchmark_translation.measure(machine, config, sizes.translation)
    for work, rate, operations, observed in (
        ("training", max(speed.training), 6, machine.observed[-2]),
        ("decoding", max(speed.decoding), 2, machine.observed[-1]),
    ):
        share = operations * speed.parameters * rate / products
        kernels = observed.launches, observed.memory
        yield Row(f"{name}, {work}, {precision}", "tokens", rate, share, *kernels)


def _kind(machine: Machine) -> torch.dtype:
    return torch.bfloat16 if has_bfloat16(machine.device) else torch.float32


def _row(machine: ObservedMachine, result: benchmark.Result, unit: str, count: int) -> Row:
    """count: of units in what the result is of."""
    quickest, observed = min(result.ours), machine.observed[-1]
    share = result.limit / quickest
    kernels = observed.launches, observed.memory
    return Row(result.name, unit, count / quickest, share, *kernels)


def features_of_files(
    machine: ObservedMachine, photos: int, batch_size: int, encoding: float
) -> Row:
    """`captioner features` on generated JPEG photos of 640x480, from files to the store.

    encoding: seconds that the GPU needs to encode a photo.
    """
    with tempfile.TemporaryDirectory() as folder:
        mapping = {
            "data": {
                "format": "table",
                "annotations": str(_write_photos(Path(folder), photos)),
                "images": folder,
            },
            "encoder": {"name": "vgg19", "weights": "random"},
            "features": {
                "folder": f"{folder}/features",
                "batch_size": batch_size,
                "precision": str(_kind(machine)).removeprefix("torch."),
            },
        }
        recipe = from_mapping(CaptioningRecipe, mapping, "acceptance")
        begin = time.perf_counter()
        fill_stores(recipe, Engine(machine.device))
        seconds = time.perf_counter() - begin
    name = f"features of {photos} files, start included"
    return Row(name, "photos", photos / seconds, encoding * photos / seconds, None, None)


def _write_photos(folder: Path, count: int) -> Path:
    """Write photos of coarse random colours, and a table with a caption for each."""
    random = numpy.random.default_rng(0)
    table = folder / "captions.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "caption", "split"])
        for number in range(count):
            colours = random.integers(0, 255, (30, 40, 3), numpy.uint8)
            photo = Image.fromarray(colours).resize((640, 480), Image.Resampling.BICUBIC)
            photo.save(folder / f"{number}.jpg", quality=90)
            writer.writerow([f"{number}.jpg", "a photo", "val" if number < 2 else "train"])
    return table


def run_tests(device: torch.device, seconds: float) -> str:
    """Run the tests marked `gpu` on a device: "passed", "failed" or "not finished"."""
    files = [
        str(path)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "needs_gpu" in (text := path.read_text(encoding="utf-8")) or "mark.gpu" in text
    ]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-n", "0", "-q", "--tb=short", *files]
    environment = {**os.environ, "GPU_TESTS_DEVICE": device.type}
    # A new session: the processes that the tests start are stopped with them.
    tests = subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return "failed" if tests.wait(seconds) else "passed"
    except subprocess.TimeoutExpired:
        return "not finished"
    finally:
        if tests.poll() is None:
            os.killpg(tests.pid, signal.SIGKILL)
            tests.wait()


def learn_shapes(device: torch.device, small: bool) -> Iterator[Learned]:
    """Train configs/shapes_soft.yaml, encoder and all. small: a little of it."""
    few = ["data.shapes.train=64", "data.shapes.validation=8", "training.epochs=1"]
    yield Learned("shapes", _train("shapes_soft.yaml", few if small else [], device))


def learn_flickr8k(folder: Path, device: torch.device) -> Iterator[Learned]:
    """Train configs/flickr8k_small_soft.yaml, features first."""
    changes = [
        f"data.annotations={folder / 'Flickr8k.token.txt'}",
        f"data.images={folder / 'images'}",
        f"data.train={folder / 'train.txt'}",
        f"data.validation={folder / 'val.txt'}",
        "data.archives={}",
        *(["training.precision=bfloat16"] if has_bfloat16(device) else []),
    ]
    yield Learned("Flickr8k", _train("flickr8k_small_soft.yaml", changes, device))


def _train(config: str, changes: list[str], device: torch.device) -> dict[str, float]:
    """Train a config in a temporary folder; the scores of the best epoch."""
    with tempfile.TemporaryDirectory() as work:
        changes = [*changes, f"features.folder={work}/features"]
        recipe = read_any_recipe(ROOT / "configs" / config, changes)
        model = train_run(recipe, Path(work) / "run", device=device)
        scores: dict[str, float] = json.loads((model / "scores.json").read_text(encoding="utf-8"))
    return scores


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--small", action="store_true", help="small sizes, also on a CPU")
    parser.add_argument("--minutes", type=float, default=9, help="(default: %(default)g)")
    parser.add_argument("--flickr8k", type=Path, metavar="FOLDER", help="photos and captions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as well")
    arguments = parser.parse_args()
    flickr8k: Path | None = arguments.flickr8k
    if flickr8k is None and FLICKR8K.is_dir() and not arguments.small:
        flickr8k = FLICKR8K
    if flickr8k is not None and not flickr8k.is_dir():
        raise UserError(f"--flickr8k {flickr8k} is not a folder")
    check_outputs(arguments, (), ("--json",))
    begin = time.perf_counter()
    device = choose_device(arguments.device)
    if device.type != "cuda" and not arguments.small:
        raise UserError("there is no CUDA device here: give --small to see whether this runs")
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # As training does.
    print(described(device) + (", small sizes" if arguments.small else ""), flush=True)
    results: list[Row | Learned] = []
    failed: list[str] = []
    tests = run_tests(device, 60 * arguments.minutes / 2)
    print(f"tests: {tests}", flush=True)

    def write_results() -> None:
        if arguments.json is not None:
            report = {
                "machine": described(device),
                "speeds": [*speeds, copying],
                "tests": tests,
                "failed": failed,
                "results": [asdict(each) for each in results],
            }
            write_json(arguments.json, report)

    machine = ObservedMachine(device, 1 if arguments.small else 5)
    kinds = [torch.float32] + [torch.bfloat16] * has_bfloat16(device)
    names = ["TF32" if device.type == "cuda" else "float32", "bfloat16"]
    speeds = [
        f"{name} {machine.products(kind) / 1e12:,.2f} TFLOP/s"
        for name, kind in zip(names, kinds, strict=False)
    ]
    copying = f"copy {machine.bandwidth() / 1e9:,.0f} GB/s"
    print(f"matrix products and memory: {', '.join([*speeds, copying])}")
    print(f"{'':<50}{'speed':>22}{'share':>8}{'kernels':>10}{'GB':>10}")
    write_results()
    for name, measure in works(machine, SMALL if arguments.small else Sizes(), flickr8k):
        if time.perf_counter() - begin >= 60 * arguments.minutes:
            print(f"from {name} on nothing was measured: {arguments.minutes:g} minutes are over")
            break
        try:
            for result in measure():
                results.append(result)
                print(result, flush=True)
                write_results()
        except Exception:
            failed.append(name)
            print(f"{name} failed:\n{traceback.format_exc()}", flush=True)
            write_results()
    return 1 if failed or tests != "passed" else 0


if __name__ == "__main__":
    sys.exit(run_program(main, "gpu_acceptance"))
