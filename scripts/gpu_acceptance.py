"""Whether the package works on a GPU, and how near it comes to what the GPU can do.

One command, about ten minutes on one GPU; photos, features and sentences are generated in COCO's
sizes. First the tests marked `gpu`. Then a table: photos, captions, images and tokens a second; the
share of the time that the GPU itself needs, for its largest matrix product or a copy of memory,
whichever takes longer; kernels launched and the peak of memory, of one unit of work (a batch or a
step). Of translators the share counts two operations a parameter and token, six in training.

  python scripts/gpu_acceptance.py --json table.json
  python scripts/gpu_acceptance.py --flickr8k FOLDER
  python scripts/gpu_acceptance.py --small

--flickr8k: also trains configs/flickr8k_small_soft.yaml, on the photos `images` and the files
  Flickr8k.token.txt, train.txt and val.txt of the folder; on a CPU its CIDEr-D was 0.471.
--minutes: after them no row of the table is begun, and the program says so.
--small: batches of a few, also on a CPU, where kernels and memory are not counted and the tests are
  skipped: whether the program runs.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
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

from captioner.cli.program import run_program
from captioner.devices import choose_device, has_bfloat16
from captioner.errors import UserError
from captioner.files import check_output, write_json
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.feature_extraction import fill_stores
from captioner.runs.read_recipe import read_any_recipe
from captioner.runs.train_run import train_run
from captioner.schema import from_mapping
from captioner.training import Engine

ROOT = Path(__file__).resolve().parents[1]

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
    return Observed(launches, memory)


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


def rows(machine: ObservedMachine, sizes: Sizes) -> Iterator[Row]:
    """Measure the rows of the table."""
    kind = torch.bfloat16 if has_bfloat16(machine.device) else torch.float32

    def captioning(result: benchmark.Result, unit: str, count: int) -> Row:
        """count: of units in what the result is of."""
        quickest = min(result.ours)
        share = result.limit / quickest
        return Row(result.name, unit, count / quickest, share, *_last(machine))

    encoding = benchmark.extraction(machine, sizes.encoded, kind)
    yield captioning(encoding, "photos", 1)
    yield features_of_files(machine, sizes.photos, sizes.encoded, encoding.limit)
    for count in sizes.training:
        for compiled in (False, True):
            step = benchmark.training(machine, count, kind, compiled)
            yield captioning(step, "captions", count)
    for count in sizes.decoding:
        yield captioning(benchmark.decoding(machine, count, kind), "captions", 1)
    for name in TRANSLATORS:
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


def _last(machine: ObservedMachine) -> tuple[int | None, int | None]:
    return machine.observed[-1].launches, machine.observed[-1].memory


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
                "precision": "bfloat16" if has_bfloat16(machine.device) else "float32",
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


def run_tests() -> bool:
    """Run the tests that need a GPU, and print their summary; returns whether none failed."""
    files = [
        str(path)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if "needs_gpu" in (text := path.read_text(encoding="utf-8")) or "mark.gpu" in text
    ]
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-n", "0", "-q", "--tb=short", *files]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    passed = ended.returncode == 0
    lines = ended.stdout.splitlines()
    print("\n".join([*lines[-15 if passed else 0 :], ended.stderr.strip()]), flush=True)
    return passed


def train_flickr8k(folder: Path, device: torch.device) -> dict[str, float]:
    """Train on Flickr8k, features first; the scores of the best epoch."""
    with tempfile.TemporaryDirectory() as work:
        changes = [
            f"data.annotations={folder / 'Flickr8k.token.txt'}",
            f"data.images={folder / 'images'}",
            f"data.train={folder / 'train.txt'}",
            f"data.validation={folder / 'val.txt'}",
            "data.archives={}",
            f"features.folder={work}/features",
            "training.precision=bfloat16",
        ]
        recipe = read_any_recipe(ROOT / "configs/flickr8k_small_soft.yaml", changes)
        assert isinstance(recipe, CaptioningRecipe)
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
    parser.add_argument("--minutes", type=float, default=10, help="(default: %(default)g)")
    parser.add_argument("--flickr8k", type=Path, metavar="FOLDER", help="photos and captions")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as well")
    arguments = parser.parse_args()
    if arguments.flickr8k is not None and not arguments.flickr8k.is_dir():
        raise UserError(f"--flickr8k {arguments.flickr8k} is not a folder")
    if arguments.json is not None:
        check_output("--json", arguments.json)
    begin = time.perf_counter()
    device = choose_device(arguments.device)
    if device.type != "cuda" and not arguments.small:
        raise UserError("there is no CUDA device here: give --small to see whether this runs")
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # As training does.
    print(described(device) + (", small sizes" if arguments.small else ""), flush=True)
    passed = run_tests()
    machine = ObservedMachine(device, 1 if arguments.small else 5)
    kinds = [torch.float32] + [torch.bfloat16] * has_bfloat16(device)
    names = ["TF32" if device.type == "cuda" else "float32", "bfloat16"]
    speeds = [
        f"{name} {machine.products(kind) / 1e12:,.2f} TFLOP/s"
        for name, kind in zip(names, kinds, strict=False)
    ]
    print(f"matrix products: {', '.join(speeds)}; copy: {machine.bandwidth() / 1e9:,.0f} GB/s")
    print(f"{'':<50}{'speed':>22}{'share':>8}{'kernels':>10}{'GB':>10}")
    table: list[Row] = []
    measured = rows(machine, SMALL if arguments.small else Sizes())
    while is_in_time := time.perf_counter() - begin < 60 * arguments.minutes:
        row = next(measured, None)
        if row is None:
            break
        table.append(row)
        print(row, flush=True)
    if not is_in_time:
        print(f"the rest was not measured: the {arguments.minutes:g} minutes are over")
    scores = None
    if arguments.flickr8k is not None:
        scores = train_flickr8k(arguments.flickr8k, device)
        print("Flickr8k:", ", ".join(f"{name} {value:.3f}" for name, value in scores.items()))
    if arguments.json is not None:
        found = {"machine": described(device), "tests passed": passed, "flickr8k": scores}
        write_json(arguments.json, {**found, "table": [asdict(row) for row in table]})
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(run_program(main, "gpu_acceptance"))
