"""How fast training, decoding, reading photos and starting are, against a plain way and the limit.

Each is timed in turn with the plain way of `benchmark_reference.py`, in this process: the medians
of --repeat runs, and of the ratios of two runs beside each other the median, the least and the
largest. What both give is compared. "limit" is what this machine itself reaches: its largest matrix
product in the type used, or a copy of memory, whichever would hold the work up longer; and how near
to it we are. Weights and features are random.

Then come what a photo and loading take the packaged model (`benchmark_packaged.py`), what a layer
costs against the length of a sentence (`benchmark_length.py`) and how many tokens a second each
translation model is trained on and decodes (`benchmark_translation.py`).

  OMP_NUM_THREADS=2 python scripts/benchmark.py
  python scripts/benchmark.py --only decoding-64 --json decoding.json
  python scripts/benchmark.py --only packaged --repeat 20
  python scripts/benchmark.py --only length translation
  python scripts/benchmark.py --device cuda
"""

from __future__ import annotations

import argparse
import copy
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import benchmark_length
import benchmark_packaged
import benchmark_reference as reference
import benchmark_translation
import torch
from benchmark_machine import Machine, add_machine_options, chosen_machine, described, spread
from torch import Tensor

from captioner.caption import CaptioningBatch, CaptioningLoss, DecoderConfig, ObjectiveConfig
from captioner.caption.decoder import ShowAttendTellDecoder
from captioner.cli.program import run_program
from captioner.decoding import BeamSearch, Constraints, decode
from captioner.demo import DEMO_PHOTO
from captioner.devices import autocast, has_bfloat16
from captioner.errors import UserError
from captioner.files import check_writable, write_json
from captioner.runs.feature_extraction import encode
from captioner.runs.train_run import compile_parts
from captioner.vision.feature_store import FeatureStore, StoreRecord, StoreWriter
from captioner.vision.vgg import VGGConfig, VGGEncoder

WORDS, LENGTH, PLACES, SIZE = 10_000, 16, 196, 512
"""V, words of a caption, L, and E = H = A = D."""

START, END, BEAM = 1, 2, 5

SECTIONS: dict[str, Callable[[Machine], Sequence[Any]]] = {
    "packaged": benchmark_packaged.report,
    "length": benchmark_length.report,
    "translation": benchmark_translation.report,
}
"""What has a module of its own; printed behind what is measured here."""


@dataclass(frozen=True)
class Result:
    """One line of the table.

    plain, ours: seconds of every run of the plain way (none where there is none) and of this
        package's, for one `unit`.
    products, bytes: floating point operations and bytes moved, for a unit.
    limit: seconds a unit at this machine's own speed. difference: between what both give.
    """

    name: str
    unit: str
    plain: list[float]
    ours: list[float]
    products: float
    bytes: float
    limit: float
    difference: str


def make_decoder(machine: Machine) -> ShowAttendTellDecoder:
    """The decoder of all measurements: the paper's, of 512s, without dropout."""
    torch.manual_seed(0)
    decoder = ShowAttendTellDecoder(DecoderConfig(dropout=0.0), WORDS)
    return decoder.to(machine.device)


def make_annotations(machine: Machine, images: int) -> Tensor:
    """Annotation vectors (B, L, D), random, of the usual kind: at least 0."""
    generator = torch.Generator().manual_seed(1)
    return torch.rand(images, PLACES, SIZE, generator=generator).to(machine.device)


def step_products(rows: int) -> float:
    """Operations of one decoder step for so many rows, the projection of keys left out."""
    recurrent = 4 * SIZE * 3 * SIZE + SIZE * SIZE + SIZE  # LSTM, query and gate
    output = 2 * SIZE * SIZE + SIZE * WORDS
    looked = PLACES * SIZE * 2  # The energies and the weighted sum; tanh is not counted.
    return 2.0 * rows * (recurrent + output + looked)


def training(
    machine: Machine, batch_size: int, dtype: torch.dtype, compiled: bool = False
) -> Result:
    """One step from stored features: loss, gradient, Adam. compiled: as `training.compile`."""
    decoder = make_decoder(machine)
    plain_decoder = copy.deepcopy(decoder)
    loss = CaptioningLoss(decoder, ObjectiveConfig())
    if compiled:
        compile_parts(loss)
    annotations = make_annotations(machine, batch_size)
    words = torch.randint(3, WORDS, (batch_size, LENGTH), device=machine.device)
    inputs = torch.cat([torch.full_like(words[:, :1], START), words], dim=1)  # (B, T)
    targets = torch.cat([words, torch.full_like(words[:, :1], END)], dim=1)  # (B, T)
    batch = CaptioningBatch(annotations, inputs, targets, torch.ones_like(inputs, dtype=torch.bool))
    plain_adam = torch.optim.Adam(plain_decoder.parameters(), 4e-4, foreach=False)
    adam = torch.optim.AdamW(decoder.parameters(), 4e-4, weight_decay=0.0, fused=True)

    def plain() -> float:
        plain_adam.zero_grad()
        found = reference.training_loss(plain_decoder, annotations, inputs, targets)
        torch.autograd.backward(found)
        plain_adam.step()
        return float(found.detach())

    def ours() -> float:
        adam.zero_grad(set_to_none=True)
        with autocast(machine.device, dtype):
            found = loss.loss(batch)["loss"]
        torch.autograd.backward(found)
        adam.step()
        return float(found.detach())

    (plain_times, own_times), (wanted, found) = machine.seconds(plain, ours)
    # Forward, and twice as much back; keys have a gradient, what is looked at has none.
    keys = 2 * 2.0 * batch_size * PLACES * SIZE * SIZE
    products = keys + 3 * (LENGTH + 1) * step_products(batch_size)
    width = 2 if dtype == torch.bfloat16 else 4
    # Keys and annotation vectors, read at every step there and back.
    moved = 2.0 * (LENGTH + 1) * 2 * annotations.numel() * width
    return Result(
        f"training step, {_name(dtype)}, batch of {batch_size}{', compiled' * compiled}",
        "step",
        plain_times,
        own_times,
        products,
        moved,
        machine.limit(products, dtype, moved),
        f"loss {abs(found - wanted) / abs(wanted):.0e}",
    )


def decoding(machine: Machine, images: int, dtype: torch.dtype) -> Result:
    """Beam search of LENGTH steps, for so many images at a time."""
    decoder = make_decoder(machine).eval()
    annotations = make_annotations(machine, images)
    words = LENGTH - 1  # And the end.
    constraints = Constraints(minimum_length=words, maximum_length=words)

    def ours() -> list[tuple[list[int], float]]:
        with torch.no_grad(), autocast(machine.device, dtype):
            found = decode(
                decoder,
                decoder.remember(annotations),
                start=START,
                end=END,
                strategy=BeamSearch(BEAM),
                constraints=constraints,
            )
        return [(each[0].tokens, each[0].log_probability) for each in found]

    def plain() -> list[tuple[list[int], float]]:
        return [
            reference.beam_search(decoder, annotations[image], BEAM, words, START, END)
            for image in range(sample)
        ]

    sample = min(images, 2)
    (plain_times, own_times), (wanted, found) = machine.seconds(plain, ours)
    same = sum(own[0] == other[0] for own, other in zip(found, wanted, strict=False))
    apart = max(abs(own[1] - other[1]) for own, other in zip(found, wanted, strict=False))
    keys = 2.0 * PLACES * SIZE * SIZE
    products = keys + (1 + BEAM * (LENGTH - 1)) * step_products(1)
    width = 2 if dtype == torch.bfloat16 else 4
    weights = 4 * SIZE * 3 * SIZE + 3 * SIZE * SIZE + SIZE * WORDS
    moved = LENGTH * (2.0 * PLACES * SIZE + weights / images) * width
    return Result(
        f"beam of {BEAM}, {_name(dtype)}, {images} image{'s' * (images > 1)}",
        "image",
        [each / sample for each in plain_times],
        [each / images for each in own_times],
        products,
        moved,
        machine.limit(products, dtype, moved),
        f"{same}/{sample} the same, log p {apart:.0e}",
    )


def extraction(machine: Machine, images: int, dtype: torch.dtype) -> Result:
    """VGG-19's annotation vectors of photos that are read and preprocessed already."""
    torch.manual_seed(0)
    plain_encoder = VGGEncoder(VGGConfig()).to(machine.device).eval()
    encoder = copy.deepcopy(plain_encoder).to(memory_format=torch.channels_last)
    photos = torch.randn(images, 3, 224, 224, device=machine.device)
    own_photos = photos.to(memory_format=torch.channels_last)
    with torch.no_grad():
        (plain_times, own_times), (wanted, found) = machine.seconds(
            lambda: plain_encoder(photos[:1]), lambda: encode(encoder, own_photos, _name(dtype))
        )
    products = sum(
        2.0 * 9 * layer.in_channels * layer.out_channels * side**2
        for layer, side in _convolutions(encoder)
    )
    apart = float((found[:1].float() - wanted).norm() / wanted.norm())
    return Result(
        f"VGG-19, {_name(dtype)}, {images} images",
        "image",
        plain_times,
        [each / images for each in own_times],
        products,
        0.0,
        machine.limit(products, dtype, 0.0),
        f"features {apart:.0e}",
    )


def _convolutions(encoder: VGGEncoder) -> list[tuple[torch.nn.Conv2d, int]]:
    """The convolutions, each with the side of its result, in pixels."""
    found, side = [], 224
    for layer in encoder.features:
        if isinstance(layer, torch.nn.MaxPool2d):
            side //= 2
        elif isinstance(layer, torch.nn.Conv2d):
            found.append((layer, side))
    return found


def store_reading(machine: Machine, batch_size: int) -> Result:
    """Batches of shuffled rows of a feature store, in float16."""
    rows = 8 * batch_size
    content = make_annotations(machine, batch_size).half().cpu()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        record = StoreRecord(
            encoder={},
            preprocessing={},
            images=[f"{row}.jpg" for row in range(rows)],
            shape=(PLACES, SIZE),
        )
        with StoreWriter(path / "store", record) as writer:
            for first in range(0, rows, batch_size):
                writer.write(range(first, first + batch_size), content)
        store = FeatureStore(path / "store")
        plain_files = []
        for row in range(batch_size):  # The plain way has a file for each image.
            plain_files.append(path / f"{row}.pt")
            torch.save(content[row].float(), plain_files[-1])
        order = torch.randperm(rows, generator=torch.Generator().manual_seed(0))[:batch_size]
        (plain_times, own_times), (wanted, found) = machine.seconds(
            lambda: torch.stack([torch.load(file) for file in plain_files]),
            lambda: store.read(order, torch.float16),
        )
    same = torch.equal(found, wanted[order % batch_size].half())
    moved = 2.0 * found.numel() * 2
    return Result(
        f"reading the store, batch of {batch_size}",
        "batch",
        plain_times,
        own_times,
        0.0,
        moved,
        machine.limit(0.0, torch.float32, moved),
        "the same" if same else "NOT THE SAME",
    )


def cold_start(machine: Machine) -> Result:
    """`captioner caption` of one photo, from nothing; the limit is importing torch."""

    def run(*arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    (torch_times, own_times), _ = machine.seconds(
        lambda: run("-c", "import torch"),
        lambda: run("-m", "captioner", "caption", str(DEMO_PHOTO), "--device", "cpu"),
    )
    limit = statistics.median(torch_times)
    return Result("captioner caption, one photo", "start", [], own_times, 0, 0, limit, "")


def measurements(device: str, with_bfloat16: bool) -> dict[str, Callable[[Machine], Result]]:
    """What can be measured, by name, on a machine that has products in bfloat16 or has not."""
    low, wide = torch.bfloat16, torch.float32
    if device == "cuda":
        return {
            "training": lambda machine: training(machine, 256, low),
            "decoding": lambda machine: decoding(machine, 64, low),
            "extraction": lambda machine: extraction(machine, 256, low),
        }
    known = {
        "training": lambda machine: training(machine, 80, low),
        "training-float32": lambda machine: training(machine, 80, wide),
        "decoding-1": lambda machine: decoding(machine, 1, wide),
        "decoding-32": lambda machine: decoding(machine, 32, wide),
        "decoding-64": lambda machine: decoding(machine, 64, wide),
        "decoding-1-bfloat16": lambda machine: decoding(machine, 1, low),
        "decoding-64-bfloat16": lambda machine: decoding(machine, 64, low),
        "extraction": lambda machine: extraction(machine, 8, low),
        "extraction-float32": lambda machine: extraction(machine, 8, wide),
        "store": lambda machine: store_reading(machine, 80),
        "start": cold_start,
    }
    if with_bfloat16:
        return known
    # Imitated, these would take minutes and say nothing.
    for name in ("training", "decoding-1-bfloat16", "decoding-64-bfloat16", "extraction"):
        del known[name]
    return known


def report(
    machine: Machine, known: dict[str, Callable[[Machine], Result]], names: Sequence[str]
) -> list[Result]:
    """Measure and print those of these names."""
    kinds = [torch.float32] * (machine.device.type == "cpu")
    kinds += [torch.bfloat16] * has_bfloat16(machine.device)
    speeds = [f"{_name(kind)} {machine.products(kind) / 1e9:,.0f} GFLOP/s" for kind in kinds]
    if torch.bfloat16 not in kinds:
        speeds.append("no bfloat16")
    print(f"matrix products: {', '.join(speeds)}; copy: {machine.bandwidth() / 1e9:,.0f} GB/s")
    print(f"{WORDS:,} words, captions of {LENGTH}, maps of {PLACES} x {SIZE}; milliseconds")
    print(f"{'':<38}{'plain':>10}{'ours':>10}{'ratio':>20}{'limit':>10}{'reached':>8}  difference")
    results = []
    for name in names:
        results.append(known[name](machine))
        print(line(results[-1]), flush=True)
    return results


def line(result: Result) -> str:
    """A result as a line of the table."""
    ours = statistics.median(result.ours)
    plain = ratio = ""
    if result.plain:
        plain = f"{statistics.median(result.plain) * 1e3:.1f}"
        ratio = spread([one / other for one, other in zip(result.plain, result.ours, strict=True)])
    return (
        f"{result.name:<38}{plain:>10}{ours * 1e3:>10.1f}{ratio:>20}"
        f"{result.limit * 1e3:>10.1f}{result.limit / ours:>8.2f}  {result.difference}"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        nargs="+",
        help=f"of {', '.join(measurements('cpu', True))}; "
        f"on cuda of {', '.join(measurements('cuda', True))}; and {', '.join(SECTIONS)}",
    )
    add_machine_options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as well")
    arguments = parser.parse_args()
    if arguments.json is not None:
        check_writable("--json", arguments.json.parent)
    machine = chosen_machine(arguments)
    known = measurements(arguments.device, has_bfloat16(machine.device))
    names = arguments.only or [*known, *SECTIONS]
    for name in names:
        if name not in known and name not in SECTIONS:
            every = ", ".join((*known, *SECTIONS))
            raise UserError(f"--only {name!r} is not one of {every}, on this machine")
    print(described(machine.device))
    results: dict[str, Sequence[Any]] = {}
    if own := [name for name in names if name in known]:
        results["captioning"] = report(machine, known, own)
    for name, section in SECTIONS.items():
        if name in names:
            print(f"\n{name}")
            results[name] = section(machine)
    if arguments.json is not None:
        found = {name: list(map(asdict, section)) for name, section in results.items()}
        write_json(arguments.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main, "benchmark"))
