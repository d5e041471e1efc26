"""What a recurrent layer, a convolution and self-attention cost against the length of a sentence.

`benchmark.py --only length` prints, for each length, milliseconds of a layer's forward pass, and of
one with its gradient, as training needs it (the median of --repeat times), and how many times as
long as for the shortest length. The last columns say what the number of multiplications alone would
make of that: with d the size and k the width of the convolution, a recurrent layer has O(n d^2), a
convolution O(k n d^2) and self-attention O(n^2 d) with O(n d^2) for its projections (Vaswani et al.
2017, *Attention Is All You Need*, table 1). What a table of operations cannot say is how much of it
a device does at once: a recurrent layer has n steps that wait for each other. Weights and sentences
are random.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from benchmark_machine import Machine
from torch import Tensor, nn

from captioner.attention import MultiHeadAttention
from captioner.translate.recurrent_encoder import RecurrentEncoder

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
BATCH_SIZE, SIZE, HEADS, WIDTH = 8, 512, 8, 3
"""Sentences at once, d, N of self-attention, and k of the convolution."""


class Layer(NamedTuple):
    """A layer of d numbers.

    forward: (B, S, D) -> (B, S, D). products: multiplications for a sentence of a length.
    """

    module: nn.Module
    forward: Callable[[Tensor], Tensor]
    products: Callable[[int], float]


def make_layers(size: int) -> dict[str, Layer]:
    """The three layers, by name. size: d."""
    torch.manual_seed(0)
    lstm = RecurrentEncoder("lstm", size, size)
    convolution = nn.Conv1d(size, size, WIDTH, padding=WIDTH // 2)
    attention = MultiHeadAttention(size, size, HEADS)
    return {
        # Four gates, of the word and of the state.
        "recurrent": Layer(lstm, lambda x: lstm(x)[0], lambda n: 8 * n * size**2),
        "convolution": Layer(
            convolution,
            lambda x: convolution(x.transpose(1, 2)).transpose(1, 2),
            lambda n: WIDTH * n * size**2,
        ),
        # Four projections, scores and weighted sums.
        "self-attention": Layer(
            attention,
            lambda x: attention(x, attention.remember(x)).context,
            lambda n: 4 * n * size**2 + 2 * n**2 * size,
        ),
    }


def seconds(machine: Machine, layer: Layer, vectors: Tensor, work: str) -> float:
    """The median of a layer's `forward` or `training` on vectors (B, S, D)."""

    @torch.no_grad()
    def forward() -> None:
        layer.forward(vectors)

    def train() -> None:
        layer.module.zero_grad()
        given = vectors.detach().requires_grad_()  # As a layer in the middle of a network has it.
        torch.autograd.backward(layer.forward(given).sum())

    (times,), _ = machine.seconds(train if work == "training" else forward)
    return statistics.median(times)


def report(machine: Machine, lengths: Sequence[int] = LENGTHS, size: int = SIZE) -> None:
    """Measure and print both kinds of work."""
    print(f"{BATCH_SIZE} sentences at once, d = {size}, k = {WIDTH}, {HEADS} heads, float32")
    layers = make_layers(size)
    for layer in layers.values():
        layer.module.to(machine.device)
    for work in ("forward", "training"):
        print(f"\n{work + ', ms':<16}" + "".join(f"{name:>22}" for name in layers), end="")
        print("   by products\n  length        " + f"{'ms':>14}{'ratio':>8}" * len(layers), end="")
        print("   (the same order)")
        shortest: dict[str, float] = {}
        for length in lengths:
            vectors = torch.randn(BATCH_SIZE, length, size, device=machine.device)
            row, expected = f"{length:>8}{'':8}", ""
            for name, layer in layers.items():
                taken = seconds(machine, layer, vectors, work)
                row += f"{taken * 1e3:>14.2f}{taken / shortest.setdefault(name, taken):>8.1f}"
                expected += f"{layer.products(length) / layer.products(lengths[0]):>7.1f}"
            print(f"{row}  {expected}", flush=True)
