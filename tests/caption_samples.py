"""Decoders of few words and places, of which every draw can be enumerated, and their inputs."""

from typing import Any

import torch
from torch import Tensor

from captioner.attention.memory import Memory
from captioner.decoding.protocol import TeacherForced, select_rows
from captioner.models.caption_config import DecoderConfig
from captioner.models.caption_decoder import CaptionDecoder
from captioner.models.caption_losses import CaptioningBatch
from captioner.models.show_attend_tell import ShowAttendTellDecoder

WORDS, PLACES, MEMORY, STEPS = 5, 3, 4, 3
"""V, L, D and T."""


def small_decoder(
    kind: type[ShowAttendTellDecoder] = ShowAttendTellDecoder, **options: Any
) -> ShowAttendTellDecoder:
    """A decoder in float64 and training mode, that looks about evenly and is not indifferent."""
    torch.manual_seed(3)
    sizes = {"embedding_size": 3, "hidden_size": 4, "attention_size": 3, "memory_size": MEMORY}
    decoder = kind(DecoderConfig(**{**sizes, **options}), WORDS).double()
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return decoder


def photos() -> Tensor:
    """Annotation vectors (3, L, D)."""
    return torch.randn(3, PLACES, MEMORY, generator=torch.Generator().manual_seed(1)).double()


def captions(rows: int = 1) -> Tensor:
    """Words to feed (3, K, T)."""
    return torch.randint(WORDS, (3, rows, STEPS), generator=torch.Generator().manual_seed(2))


def make_batch(captions: int = 1, seed: int = 0) -> CaptioningBatch:
    """Photos whose places differ, and captions of three words, two, three, two and so on."""
    generator = torch.Generator().manual_seed(5)
    source = torch.randn(captions, PLACES, MEMORY, generator=generator, dtype=torch.float64)
    inputs = torch.randint(WORDS, (captions, STEPS), generator=generator)
    targets = torch.randint(WORDS, (captions, STEPS), generator=generator)
    mask = torch.ones(captions, STEPS, dtype=torch.bool)
    mask[1::2, -1] = False
    return CaptioningBatch(source * 2, inputs, targets, mask, seed, torch.arange(captions))


def stepped(decoder: CaptionDecoder, memory: Memory, words: Tensor) -> TeacherForced:
    """The decoder's output for words (B, K, T), step by step."""
    batch, rows, _ = words.shape
    state = select_rows(decoder.start(memory), torch.zeros(batch, rows, dtype=torch.long))
    logits, weights = [], []
    for tokens in words.unbind(dim=2):
        step = decoder.step(tokens, state)
        state = select_rows(step.state, torch.arange(rows).expand(batch, -1))
        logits.append(step.logits)
        weights.append(step.weights)
    return TeacherForced(torch.stack(logits, dim=2), torch.stack(weights, dim=2))


def gradients(scalar: Tensor, decoder: ShowAttendTellDecoder) -> Tensor:
    """By all parameters, in one row; zeros by those that have no part in it."""
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    found = torch.autograd.grad(scalar, list(decoder.parameters()), **options)
    return torch.cat([each.flatten() for each in found])
