"""Captioners of few words and places, of which every draw can be enumerated."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from captioner.caption.decoder import DecoderConfig, ShowAttendTellDecoder

WORDS, PLACES, MEMORY = 5, 3, 4
"""V, L and D."""


def small_decoder(**options: Any) -> ShowAttendTellDecoder:
    """A decoder in float64 and training mode, that looks about evenly and is not indifferent."""
    torch.manual_seed(3)
    sizes = {"embedding_size": 3, "hidden_size": 4, "attention_size": 3, "memory_size": MEMORY}
    decoder = ShowAttendTellDecoder(DecoderConfig(**{**sizes, **options}), WORDS).double()
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return decoder


def gradients(scalar: Tensor, decoder: ShowAttendTellDecoder) -> list[Tensor]:
    """By each parameter; zeros by those that have no part in it."""
    parameters = list(decoder.parameters())
    return list(
        torch.autograd.grad(
            scalar, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
        )
    )
