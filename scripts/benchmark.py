"""How fast training, decoding, reading photos and starting are, against a plain way and the limit.

Each is timed in turn with the plain way of `benchmark_reference.py`, in this process: the medians
of --repeat runs, and of the ratios of two runs beside each other the median, the least and the
largest. What both give is compared. "limit" is what this machine itself reaches: its largest matrix
product in the type used, or a copy of memory, whichever would hold the work up longer; and how near
to it we are. Of starting it is `import torch`. Weights and features are random, but for `photo` and
`loading`, which are of the packaged model.

Then come what a layer costs against the length of a sentence (`benchmark_length.py`) and how many
tokens a second each translation model is trained on and decodes (`benchmark_translation.py`).

  OMP_NUM_THREADS=2 python scripts/benchmark.py
  python scripts/benchmark.py --only photo loading --repeat 20
  python scripts/benchmark.py --only translation --configs configs/multi30k_en_de.yaml
  python scripts/benchmark.py --device cuda
"""

from __future__ import annotations

import argparse
import copy
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import benchmark_length
import benchmark_reference as reference
import benchmark_translation
import torch
from benchmark_machine import Machine, described
from torch import Tensor

import captioner
from captioner.caption import CaptioningBatch, CaptioningLoss, DecoderConfig, ObjectiveConfig
from captioner.caption.decoder import ShowAttendTellDecoder
from captioner.cli.program import run_program
from captioner.decoding import BeamSearch, Constraints, decode
from captioner.demo import DEMO_PHOTO
from captioner.devices import autocast, choose_device, has_bfloat16
from captioner.errors import UserError
from captioner.runs.feature_extraction import encode
from captioner.runs.train_run import compile_parts
from captioner.vision.feature_store import FeatureStore, StoreRecord, StoreWriter
from captioner.vision.vgg import VGGConfig, VGGEncoder

WORDS, LENGTH, PLACES, SIZE = 10_000, 16, 196, 512
"""V, words of a caption, L, and E = H = A = D."""

START, END, BEAM = 1, 2, 5

LOADING = """\
import time, torch
begin = time.perf_counter()
import captioner
captioner.load()
print(time.perf_counter() - begin)
"""


@dataclass(frozen=True)
class Result:
    """One line of the table.

    plain, ours: seconds of every run of the plain way (none where there is none) and of this
        package's. limit: seconds at this machine's own speed, if it is known. difference: between
        what both give.
    """

    name: str
    plain: list[float]
    ours: list[float]
    limit: float | None = None
    difference: str = ""

    def __str__(self) -> str:
        ours = statistics.median(self.ours)
        plain = ratio = limit = reached = ""
        if self.plain:
            ratios = [one / other for one, other in zip(self.plain, self.ours, strict=True)]
            plain = f"{statistics.median(self.plain) * 1e3:.1f}"
            ratio = f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
        if self.limit is not None:
            limit, reached = f"{self.limit * 1e3:.1f}", f"{self.limit / ours:.2f}"
        return (
            f"{self.name:<38}{plain:>10}{ours * 1e3:>10.1f}{ratio:>20}"
            f"{limit:>10}{reached:>8}  {self.difference}"
        )


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
    # Keys and annotation vectors, read at every step there and back.
    moved = 2.0 * (LENGTH + 1) * 2 * annotations.numel() * dtype.itemsize
    return Result(
        f"training step, {_name(dtype)}, batch of {batch_size}{', compiled' * compiled}",
        plain_times,
        own_times,
        machine.limit(products, dtype, moved),
        f"loss {abs(found - wanted) / abs(wanted):.0e}",
    )


def decoding(machine: Machine, images: int, dtype: torch.dtype) -> Result:
    """Beam search of LENGTH steps, for so many images at a time; of one image."""
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
    weights = 4 * SIZE * 3 * SIZE + 3 * SIZE * SIZE + SIZE * WORDS
    moved = LENGTH * (2.0 * PLACES * SIZE + weights / images) * dtype.itemsize
    return Result(
        f"beam of {BEAM}, {_name(dtype)}, {images} image{'s' * (images > 1)}",
        [each / sample for each in plain_times],
        [each / images for each in own_times],
        machine.limit(products, dtype, moved),
        f"{same}/{sample} the same, log p {apart:.0e}",
    )


def extraction(machine: Machine, images: int, dtype: torch.dtype) -> Result:
    """VGG-19's annotation vectors of photos that are preprocessed already; of one image."""
    torch.manual_seed(0)
    plain_encoder = VGGEncoder(VGGConfig()).to(machine.device).eval()
    encoder = copy.deepcopy(plain_encoder).to(memory_format=torch.channels_last)
    photos = torch.randn(images, 3, 224, 224, device=machine.device)
    own_photos = photos.to(memory_format=torch.channels_last)
    with torch.no_grad():
        (plain_times, own_times), (wanted, found) = machine.seconds(
            lambda: plain_encoder(photos[:1]), lambda: encode(encoder, own_photos, _name(dtype))
        )
    products, side = 0.0, 224
    for layer in encoder.features:
        if isinstance(layer, torch.nn.MaxPool2d):
            side //= 2
        elif isinstance(layer, torch.nn.Conv2d):
            products += 2.0 * 9 * layer.in_channels * layer.out_channels * side**2
    apart = float((found[:1].float() - wanted).norm() / wanted.norm())
    return Result(
        f"VGG-19, {_name(dtype)}, {images} images",
        plain_times,
        [each / images for each in own_times],
        machine.limit(products, dtype, 0.0),
        f"features {apart:.0e}",
    )


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
    return Result(
        f"reading the store, batch of {batch_size}",
        plain_times,
        own_times,
        machine.limit(0.0, torch.float32, 2.0 * found.nbytes),
        "the same" if same else "NOT THE SAME",
    )


def cold_start(machine: Machine) -> Result:
    """`captioner caption` of one photo, from nothing."""

    def run(*arguments: str) -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    (torch_times, own_times), _ = machine.seconds(
        lambda: run("-c", "import torch"),
        lambda: run("-m", "captioner", "caption", str(DEMO_PHOTO), "--device", "cpu"),
    )
    return Result("captioner caption, one photo", [], own_times, statistics.median(torch_times))


def one_photo(machine: Machine) -> Result:
    """From a file to its caption, by the packaged model, which has captioned already."""
    model = captioner.load(device=machine.device)
    (times,), _ = machine.seconds(lambda: model.caption([DEMO_PHOTO]))
    return Result("one photo, warm", [], times)


def loading(machine: Machine) -> Result:
    """The packaged model on the CPU, in a Python that has imported torch and nothing else."""
    command = [sys.executable, "-c", LOADING]
    times = [float(subprocess.check_output(command)) for _ in range(machine.repeat)]
    return Result("loading, after import torch", [], times)


def measurements(machine: Machine) -> dict[str, Callable[[], Result]]:
    """What can be measured on this machine, by name; without bfloat16 where it is imitated."""
    low, wide = torch.bfloat16, torch.float32
    known: dict[str, Callable[[], Result]] = {}
    if machine.device.type == "cuda":
        known["training"] = lambda: training(machine, 256, low)
        known["decoding"] = lambda: decoding(machine, 64, low)
        known["extraction"] = lambda: extraction(machine, 256, low)
        return known
    if has_bfloat16(machine.device):
        known["training"] = lambda: training(machine, 80, low)
        known["decoding-1-bfloat16"] = lambda: decoding(machine, 1, low)
        known["decoding-64-bfloat16"] = lambda: decoding(machine, 64, low)
        known["extraction"] = lambda: extraction(machine, 8, low)
    known["training-float32"] = lambda: training(machine, 80, wide)
    known["decoding-1"] = lambda: decoding(machine, 1, wide)
    known["decoding-32"] = lambda: decoding(machine, 32, wide)
    known["decoding-64"] = lambda: decoding(machine, 64, wide)
    known["extraction-float32"] = lambda: extraction(machine, 8, wide)
    known["store"] = lambda: store_reading(machine, 80)
    known["start"] = lambda: cold_start(machine)
    known["photo"] = lambda: one_photo(machine)
    known["loading"] = lambda: loading(machine)
    return known


def print_header(machine: Machine) -> None:
    """Print the machine's own speeds, and the head of the table."""
    kinds = [torch.float32] * (machine.device.type == "cpu")
    kinds += [torch.bfloat16] * has_bfloat16(machine.device)
    speeds = [f"{_name(kind)} {machine.products(kind) / 1e9:,.0f} GFLOP/s" for kind in kinds]
    print(f"matrix products: {', '.join(speeds)}; copy: {machine.bandwidth() / 1e9:,.0f} GB/s")
    print(f"{WORDS:,} words, captions of {LENGTH}, maps of {PLACES} x {SIZE}; milliseconds")
    print(f"{'':<38}{'plain':>10}{'ours':>10}{'ratio':>20}{'limit':>10}{'reached':>8}  difference")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--repeat", type=int, default=5, help="times each (default: %(default)s)")
    parser.add_argument(
        "--only", metavar="NAME", nargs="+", help="measure these; an unknown name lists all"
    )
    parser.add_argument(
        "--configs",
        type=Path,
        nargs="+",
        metavar="CONFIG",
        default=benchmark_translation.CONFIGS,
        help="of translators of subwords (default: all of Multi30k from English to German)",
    )
    parser.add_argument(
        "--sentences", type=int, default=32, help="translated at once (default: %(default)s)"
    )
    arguments = parser.parse_args()
    machine = Machine(choose_device(arguments.device), arguments.repeat)
    known = measurements(machine)
    sizes = benchmark_translation.Sizes(sentences=arguments.sentences)
    sections: dict[str, Callable[[], None]] = {
        "length": lambda: benchmark_length.report(machine),
        "translation": lambda: benchmark_translation.report(machine, arguments.configs, sizes),
    }
    every = [*known, *sections]
    names = arguments.only or every
    for name in names:
        if name not in every:
            raise UserError(f"--only {name!r} is not one of {', '.join(every)}, on this machine")
    print(described(machine.device))
    if known.keys() & set(names):
        print_header(machine)
    for name in filter(known.__contains__, names):
        print(known[name](), flush=True)
    for name in filter(sections.__contains__, names):
        print(f"\n{name}")
        sections[name]()


if __name__ == "__main__":
    sys.exit(run_program(main, "benchmark"))
