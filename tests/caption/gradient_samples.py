"""Captioners of few words and places, of which every draw can be enumerated."""

from typing import Any

import torch
from torch import Tensor

from captioner.caption.losses import CaptioningBatch
from captioner.caption.lstm import DecoderConfig, ShowAttendTellDecoder

WORDS, PLACES, MEMORY, STEPS = 5, 3, 4, 3
"""V, L, D and T."""


def small_decoder(**options: Any) -> ShowAttendTellDecoder:
    """A decoder in float64 and training mode, that looks about evenly and is not indifferent."""
    torch.manual_seed(3)
    sizes = {"embedding_size": 3, "hidden_size": 4, "attention_size": 3, "memory_size": MEMORY}
    decoder = ShowAttendTellDecoder(DecoderConfig(**{**sizes, **options}), WORDS).double()
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return decoder


def make_batch(captions: int = 1, seed: int = 0) -> CaptioningBatch:
    """Photos whose places differ, and captions of three words, two, three, two and so on."""
    generator = torch.Generator().manual_seed(5)
    source = torch.randn(captions, PLACES, MEMORY, generator=generator, dtype=torch.float64)
    inputs = torch.randint(WORDS, (captions, STEPS), generator=generator)
    targets = torch.randint(WORDS, (captions, STEPS), generator=generator)
    mask = torch.ones(captions, STEPS, dtype=torch.bool)
    mask[1::2, -1] = False
    return CaptioningBatch(source * 2, inputs, targets, mask, seed, torch.arange(captions))


def gradients(scalar: Tensor, decoder: ShowAttendTellDecoder) -> Tensor:
    """By all parameters, in one row; zeros by those that have no part in it."""
    found = torch.autograd.grad(
        scalar,
        list(decoder.parameters()),
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    return torch.cat([each.flatten() for each in found])
