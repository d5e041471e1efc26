"""What a recurrent layer, a convolution and self-attention cost against the length of a sentence.

Measured, for each length: milliseconds of a layer's forward pass, and of one with its gradient, as
training needs it (the median of --repeat times), and how many times as long as for the shortest
length. The last columns say what the number of multiplications alone would make of that: with d the
size and k the width of the convolution, a recurrent layer has O(n d^2), a convolution O(k n d^2)
and self-attention O(n^2 d) with O(n d^2) for its projections (Vaswani et al. 2017, *Attention Is
All You Need*, table 1). What a table of operations cannot say is how much of it a device does at
once: a recurrent layer has n steps that wait for each other. Weights and sentences are random.

  OMP_NUM_THREADS=1 python scripts/benchmark_length.py
  python scripts/benchmark_length.py --device cuda --batch-size 64
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from benchmark_machine import Machine, add_machine_options, chosen_machine, described
from torch import Tensor, nn

from captioner.attention import MultiHeadAttention
from captioner.cli.program import run_program
from captioner.errors import UserError
from captioner.files import check_writable, write_json
from captioner.translate.recurrent_encoder import RecurrentEncoder

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
QUICK_LENGTHS = (16, 32)
BATCH_SIZE, SIZE, HEADS, WIDTH = 8, 512, 8, 3
"""Sentences and d by default, N of self-attention, and k of the convolution."""


class Recurrent(nn.Module):
    """One LSTM in one direction."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.encoder = RecurrentEncoder("lstm", size, size)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        outputs: Tensor = self.encoder(vectors)[0]
        return outputs

    @staticmethod
    def products(length: int, size: int) -> float:
        """Multiplications for a sentence: four gates, of the word and of the state."""
        return 8.0 * length * size**2


class Convolution(nn.Module):
    """One convolution over places, as wide as `WIDTH`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = nn.Conv1d(size, size, WIDTH, padding=WIDTH // 2)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        channels: Tensor = self.layer(vectors.transpose(1, 2))  # (B, D, S)
        return channels.transpose(1, 2)  # (B, S, D)

    @staticmethod
    def products(length: int, size: int) -> float:
        """Multiplications for a sentence."""
        return float(WIDTH) * length * size**2


class SelfAttention(nn.Module):
    """Multi-head attention of a sentence to itself."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(size, size, HEADS)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        context: Tensor = self.attention(vectors, self.attention.remember(vectors)).context
        return context

    @staticmethod
    def products(length: int, size: int) -> float:
        """Multiplications for a sentence: four projections, scores and weighted sums."""
        return 4.0 * length * size**2 + 2.0 * length**2 * size


Layer = type[Recurrent] | type[Convolution] | type[SelfAttention]
LAYERS: dict[str, Layer] = {
    "recurrent": Recurrent,
    "convolution": Convolution,
    "self-attention": SelfAttention,
}


@dataclass(frozen=True)
class Cost:
    """What a layer costs at a length.

    seconds: of a batch. ratio: to the shortest length. by_products: the same of multiplications.
    """

    layer: str
    work: str
    length: int
    seconds: float
    ratio: float
    by_products: float


def measure(
    machine: Machine, work: str, lengths: tuple[int, ...], batch_size: int, size: int
) -> list[Cost]:
    """The cost of `forward` or `training` of every layer at every length."""
    found = []
    for name, kind in LAYERS.items():
        torch.manual_seed(0)
        layer = kind(size).to(machine.device)
        shortest = 0.0
        for length in lengths:
            vectors = torch.randn(batch_size, length, size, device=machine.device)
            (times,), _ = machine.seconds(_work(layer, vectors, work))
            seconds = statistics.median(times)
            shortest = shortest or seconds
            ratio = kind.products(length, size) / kind.products(lengths[0], size)
            found.append(Cost(name, work, length, seconds, seconds / shortest, ratio))
    return found


def _work(layer: nn.Module, vectors: Tensor, work: str) -> Callable[[], None]:
    def forward() -> None:
        with torch.no_grad():
            layer(vectors)

    def train() -> None:
        layer.zero_grad()
        given = vectors.detach().requires_grad_()  # As a layer in the middle of a network has it.
        torch.autograd.backward(layer(given).sum())

    return train if work == "training" else forward


def table(costs: list[Cost], work: str) -> str:
    """The costs of one kind of work, in lines a person reads."""
    own = [cost for cost in costs if cost.work == work]
    lines = [
        f"{work + ', ms':<16}" + "".join(f"{name:>22}" for name in LAYERS) + "   by products",
        f"{'length':>8}{'':8}" + f"{'ms':>14}{'ratio':>8}" * len(LAYERS) + "   (the same order)",
    ]
    for length in sorted({cost.length for cost in own}):
        row = [cost for cost in own if cost.length == length]
        times = "".join(f"{cost.seconds * 1e3:>14.2f}{cost.ratio:>8.1f}" for cost in row)
        expected = "".join(f"{cost.by_products:>7.1f}" for cost in row)
        lines.append(f"{length:>8}{'':8}{times}  {expected}")
    return "\n".join(lines)


def report(
    machine: Machine,
    lengths: tuple[int, ...] = LENGTHS,
    batch_size: int = BATCH_SIZE,
    size: int = SIZE,
) -> list[Cost]:
    """Measure and print both kinds of work."""
    print(f"{batch_size} sentences at once, d = {size}, k = {WIDTH}, {HEADS} heads, float32")
    costs = []
    for work in ("forward", "training"):
        costs += measure(machine, work, lengths, batch_size, size)
        print(f"\n{table(costs, work)}", flush=True)
    return costs


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_machine_options(parser)
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE, help="default: %(default)s")
    parser.add_argument("--size", type=int, default=SIZE, help="d (default: %(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="two lengths, small layers: whether it runs"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as well")
    arguments = parser.parse_args()
    if arguments.batch_size < 1:
        raise UserError(f"--batch-size {arguments.batch_size} is not at least 1")
    if arguments.size < 1 or arguments.size % HEADS:
        raise UserError(f"--size {arguments.size} cannot be divided among {HEADS} heads")
    if arguments.json is not None:
        check_writable("--json", arguments.json.parent)
    machine = chosen_machine(arguments)
    lengths, batch_size, size = LENGTHS, arguments.batch_size, arguments.size
    if arguments.quick:
        lengths, batch_size, size = QUICK_LENGTHS, 2, 2 * HEADS
        machine = Machine(machine.device, 1)
    print(described(machine.device))
    costs = report(machine, lengths, batch_size, size)
    if arguments.json is not None:
        write_json(arguments.json, [asdict(cost) for cost in costs])
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
