"""Captioners on a GPU: they agree with the CPU, train and decode."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gpu_samples import DEVICE, exact_products, losses_of_ten_steps, needs_gpu, precisions
from torch import nn

import captioner
from captioner.backends import torch_captions
from captioner.decoding.loop import BeamSearch, Sampling, decode
from captioner.decoding.options import AnySearch
from captioner.models.caption_config import CaptionDecoderConfig
from captioner.models.caption_losses import (
    CaptioningBatch,
    CaptioningLoss,
    ObjectiveConfig,
    SelfCriticalConfig,
)
from captioner.models.reinforce import HardAttentionLoss, SelfCriticalLoss

pytestmark = needs_gpu

WORDS = 50
SIZES = {
    "lstm": {"embedding_size": 32, "hidden_size": 48, "attention_size": 32},
    "transformer": {"embedding_size": 32, "heads": 4, "inner_size": 48, "layers": 2},
}


def make_decoder(kind: str = "lstm", selection: str = "soft", dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    fields = {"kind": kind, "selection": selection, "dropout": dropout, "memory_size": 24}
    return torch_captions.make_decoder(
        CaptionDecoderConfig.of_kind({**fields, **SIZES[kind]}), WORDS
    )


def make_batch() -> CaptioningBatch:
    generator = torch.Generator().manual_seed(1)
    source = torch.randn(6, 16, 24, generator=generator)
    tokens = torch.randint(4, WORDS, (6, 8), generator=generator)
    mask = torch.arange(8) < torch.tensor([8, 7, 5, 5, 3, 1]).unsqueeze(1)
    return CaptioningBatch(source, tokens, tokens.roll(-1, 1), mask, 0, torch.arange(6), 0.5)


@pytest.mark.parametrize("kind", SIZES)
def test_the_loss_and_its_gradient_are_those_of_the_cpu(kind: str) -> None:
    here = CaptioningLoss(make_decoder(kind), ObjectiveConfig())
    there = copy.deepcopy(here).to(DEVICE)
    with exact_products():
        for loss, device in ((here, "cpu"), (there, DEVICE)):
            torch.autograd.backward(loss.loss(make_batch().to(device))["loss"])
    ours, theirs = ([each.grad.cpu() for each in loss.parameters()] for loss in (here, there))
    torch.testing.assert_close(theirs, ours, rtol=1e-3, atol=1e-4)


def length_reward(rows: Any, captions: Any) -> torch.Tensor:
    return torch.tensor([[float(len(each)) for each in photo] for photo in captions])


def losses() -> dict[str, nn.Module]:
    sampled, hard = ObjectiveConfig(scheduled_sampling=0.1), ObjectiveConfig(draws=2)
    critical = ObjectiveConfig(self_critical=SelfCriticalConfig(samples=3))
    return {
        "soft": CaptioningLoss(make_decoder(dropout=0.1), sampled),
        "transformer": CaptioningLoss(make_decoder("transformer", dropout=0.1), ObjectiveConfig()),
        "hard": HardAttentionLoss(make_decoder(selection="hard"), hard),
        "self-critical": SelfCriticalLoss(make_decoder(), critical, length_reward),
    }


@precisions
@pytest.mark.parametrize("name", ["soft", "transformer", "hard", "self-critical"])
def test_ten_steps_of_training_and_a_search(name: str, precision: str) -> None:
    loss = losses()[name].to(DEVICE)
    first, last = losses_of_ten_steps(loss, make_batch(), precision)
    if name != "self-critical":  # The value of its loss means nothing.
        assert last < first
    decoder: Any = loss.decoder.eval()
    memory = decoder.remember(make_batch().source.to(DEVICE))
    three = AnySearch(sample=True, n_best=3)
    samplings = [Sampling(three, torch.Generator(device)) for device in (DEVICE, "cpu")]
    for strategy, width in ((BeamSearch(5), 5), *((sampling, 3) for sampling in samplings)):
        ranked = decode(decoder, memory, start=1, end=2, strategy=strategy)
        assert [len(each) for each in ranked] == [width] * 6


def test_the_packaged_model_gives_the_captions_of_the_cpu() -> None:
    random = np.random.default_rng(0)
    photos = [random.integers(0, 255, (90, 120, 3), np.uint8) for _ in range(3)]
    found = []
    for device in ("cpu", DEVICE):
        model = captioner.load("default", device, "float32")
        with exact_products():
            found.append(model.caption(photos))
    for here, there in zip(*found, strict=True):
        assert there.words == here.words
        assert there.log_probability == pytest.approx(here.log_probability, abs=1e-2)
        assert there.confidence == pytest.approx(here.confidence, abs=1e-2)
