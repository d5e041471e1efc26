"""The loss of a captioner, put together from its terms."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from captioner.caption.losses import (
    CaptioningBatch,
    CaptioningLoss,
    ObjectiveConfig,
    doubly_stochastic_penalty,
)
from captioner.caption.lstm import DecoderConfig, ShowAttendTellDecoder
from captioner.decoding import cross_entropies
from captioner.vision.vgg import VGGConfig, VGGEncoder


def make_decoder(**options: Any) -> ShowAttendTellDecoder:
    torch.manual_seed(0)
    config = DecoderConfig(embedding_size=6, hidden_size=7, attention_size=5, **options)
    return ShowAttendTellDecoder(config, 9).eval()


def make_batch(source: torch.Tensor) -> CaptioningBatch:
    """Two captions, of three words and of one, with their ends."""
    inputs = torch.tensor([[1, 4, 5, 6], [1, 7, 0, 0]])
    targets = torch.tensor([[4, 5, 6, 2], [7, 2, 0, 0]])
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    return CaptioningBatch(source, inputs, targets, mask)


ANNOTATIONS = torch.randn(2, 4, 512, generator=torch.Generator().manual_seed(1)).relu()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("target", ["one", "share"])
@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_loss_is_the_mean_over_captions_of_its_terms(
    weight: float, target: str, smoothing: float
) -> None:
    decoder, batch = make_decoder(), make_batch(ANNOTATIONS)
    found = CaptioningLoss(
        decoder,
        ObjectiveConfig(
            doubly_stochastic=weight,
            doubly_stochastic_target=target,
            label_smoothing=smoothing,
        ),
    ).loss(batch)
    said = decoder(decoder.remember(ANNOTATIONS), batch.inputs.unsqueeze(1))
    logits, weights = said.logits[:, 0], said.weights[:, 0]
    terms = cross_entropies(logits, batch.targets, batch.mask, smoothing).smoothed
    terms = terms + weight * doubly_stochastic_penalty(weights, batch.mask, target)
    torch.testing.assert_close(found["loss"], (terms[0] + terms[1]) / 2)
    plain = cross_entropies(logits, batch.targets, batch.mask).smoothed
    torch.testing.assert_close(found["cross_entropy"], plain.sum() / 6)
    assert found.keys() == {"loss", "cross_entropy"}
    assert [name for name, value in found.items() if value.requires_grad] == ["loss"]


def test_a_caption_of_no_words_at_all_weighs_nothing() -> None:
    batch = make_batch(ANNOTATIONS)
    nothing = batch._replace(mask=torch.zeros_like(batch.mask))
    found = CaptioningLoss(make_decoder(), ObjectiveConfig(doubly_stochastic=0.0)).loss(nothing)
    assert [float(found[name].detach()) for name in ("loss", "cross_entropy")] == [0.0, 0.0]


def test_captions_of_one_photo_share_what_the_encoder_sees_of_it() -> None:
    decoder, photos = make_decoder(), torch.randn(1, 3, 32, 32)
    encoder = VGGEncoder(VGGConfig(name="vgg11", width=0.05)).eval()
    loss = CaptioningLoss(decoder, ObjectiveConfig(), encoder)
    apart = loss.loss(make_batch(photos.expand(2, -1, -1, -1)))["loss"]
    wanted = torch.autograd.grad(apart, list(loss.parameters()))
    together = make_batch(photos)._replace(photos=torch.tensor([0, 0])).to("cpu")
    found = loss.loss(together)["loss"]
    torch.testing.assert_close(found, apart)
    gradients = torch.autograd.grad(found, list(loss.parameters()))
    torch.testing.assert_close(gradients, wanted, rtol=1e-4, atol=1e-6)
