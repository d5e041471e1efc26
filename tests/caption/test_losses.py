"""The cross-entropy loss: its terms by hand, and put together."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from captioner.caption.losses import (
    CaptioningBatch,
    CaptioningLoss,
    ObjectiveConfig,
    doubly_stochastic_penalty,
    grounding_penalty,
)
from captioner.caption.lstm import DecoderConfig, ShowAttendTellDecoder
from captioner.decoding import cross_entropies
from captioner.vision.vgg import VGGConfig, VGGEncoder

MASK = torch.tensor([[True, True], [True, False]])


WEIGHTS = torch.tensor(
    [
        [[0.7, 0.1, 0.1, 0.1], [0.4, 0.4, 0.1, 0.1]],
        [[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]],
    ]
)  # (B, T, L) = (2, 2, 4)


def test_penalty_by_hand() -> None:
    # Received: 1.1, 0.5, 0.2, 0.2; and 0.25 each, the padding left out.
    expected = [0.1**2 + 0.5**2 + 0.8**2 + 0.8**2, 4 * 0.75**2]
    torch.testing.assert_close(doubly_stochastic_penalty(WEIGHTS, MASK), torch.tensor(expected))
    # T / L is 2 / 4 and, with one word of two being padding, 1 / 4.
    expected = [0.6**2 + 0.0**2 + 0.3**2 + 0.3**2, 0.0]
    found = doubly_stochastic_penalty(WEIGHTS, MASK, "share")
    torch.testing.assert_close(found, torch.tensor(expected))


Term = Callable[[Tensor], Tensor]
TERMS: dict[str, Term] = {
    "one": lambda weights: doubly_stochastic_penalty(weights, MASK),
    "share": lambda weights: doubly_stochastic_penalty(weights, MASK, "share"),
}


@pytest.mark.parametrize("term", TERMS.values(), ids=TERMS)
def test_padding_counts_for_nothing(term: Term) -> None:
    other = WEIGHTS.clone()
    other[1, 1] = torch.randn(WEIGHTS.shape[2]) * 100
    assert torch.equal(term(WEIGHTS), term(other))
    variable = WEIGHTS.clone().requires_grad_()
    term(variable).sum().backward()
    assert torch.equal(variable.grad[1, 1], torch.zeros(WEIGHTS.shape[2]))
    assert (variable.grad[0].abs().sum(dim=-1) > 0).all()


@pytest.mark.parametrize("term", TERMS.values(), ids=TERMS)
def test_sums_are_in_float32_or_double_precision(term: Term) -> None:
    half = WEIGHTS.bfloat16()
    assert term(half).dtype == torch.float32
    assert torch.equal(term(half), term(half.float()))
    exact = WEIGHTS.double()
    exact[0, 0, 0] += 1e-12
    found, other = term(exact), term(WEIGHTS.double())
    assert found.dtype == torch.float64
    assert float((found[0] - other[0]).abs()) == pytest.approx(1e-12, rel=0.9)


def test_attention_that_misses_what_a_word_names_is_penalised() -> None:
    weights = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.2, 0.4, 0.4]]])  # (1, 3, 3)
    # The first word names the first place, the second half of the last; the third nothing.
    places = torch.tensor([[[1.0, 0, 0], [0, 0, 0.5], [0, 0, 0]]])
    weights.requires_grad_()
    penalty = grounding_penalty(weights, places)
    assert penalty.tolist() == pytest.approx([-math.log(0.5) - math.log(0.4)])
    (gradient,) = torch.autograd.grad(penalty.sum(), weights)
    expected = torch.tensor([[[-2.0, 0, 0], [0, 0, -1.25], [0, 0, 0]]])
    assert torch.allclose(gradient, expected)
    nowhere = grounding_penalty(torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[1.0, 0.0]]]))
    assert torch.isfinite(nowhere).all()
    assert float(nowhere) > 50


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
