"""Hard attention's gradient, against every draw there is, and the terms it is made of."""

import itertools
import math
from typing import Any

import pytest
import torch
from caption_samples import PLACES, STEPS, WORDS, gradients, make_batch, small_decoder
from torch import Tensor

from captioner.attention.selection import HardSelection
from captioner.caption.losses import (
    CaptioningBatch,
    CaptioningLoss,
    HardAttentionLoss,
    ObjectiveConfig,
)
from captioner.caption.lstm import ShowAttendTellDecoder
from captioner.decoding.protocol import cross_entropies


class Given(HardSelection):
    """Places (B, K, T) that are given, in place of draws."""

    def __init__(self, places: Tensor) -> None:
        super().__init__()
        self.places = iter(places.unbind(dim=-1))

    def choose(self, log_weights: Tensor, generator: torch.Generator | None) -> Tensor:
        return next(self.places)


def make_decoder(selection: str = "hard", **options: Any) -> ShowAttendTellDecoder:
    return small_decoder(selection=selection, **{"dropout": 0.0, **options})


def make_loss(decoder: ShowAttendTellDecoder | None = None, **options: float) -> HardAttentionLoss:
    fields = {"doubly_stochastic": 0.0, "entropy_weight": 0.0, "semi_sampling": 0.0}
    fields |= {"reward_weight": 1.0, **options}
    return HardAttentionLoss(decoder or make_decoder(), ObjectiveConfig(**fields)).double()  # type: ignore[arg-type]


def with_places(
    loss: HardAttentionLoss, batch: CaptioningBatch, places: Any, expected: Tensor | None = None
) -> tuple[dict[str, Tensor], Any]:
    """The loss's report, and its decoder's output, where the places (B, K, T) are given."""
    places = torch.tensor(places)
    loss.decoder.attention.selection = Given(places)
    report = loss.loss(batch)
    loss.decoder.attention.selection = Given(places)
    fed = batch.inputs.unsqueeze(1).expand(-1, places.shape[1], -1)
    return report, loss.decoder(loss.decoder.remember(batch.source), fed, None, expected)


def of_one_photo(
    loss: HardAttentionLoss, batch: CaptioningBatch, places: tuple[int, ...]
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """The report where one photo's places are given, log p(y | s, a) and log p(s | a)."""
    report, said = with_places(loss, batch, [[places]])
    smoothing = loss.objective.label_smoothing
    entropies = cross_entropies(said.logits[:, 0], batch.targets, batch.mask, smoothing)
    log_words = -entropies[0].sum()
    log_places = (said.log_probability[:, 0] * batch.mask).sum()
    return report, log_words, log_places


def enumerate_draws(loss: HardAttentionLoss, batch: CaptioningBatch) -> tuple[Tensor, Tensor]:
    """By every draw for one photo, weighted by its probability: the mean of the loss's gradient.

    And, from autograd alone, that of the lower bound, the sum of p(s | a) log p(y | s, a).
    """
    steps = int(batch.mask.sum())
    assert batch.mask[0, :steps].all()
    padding = (0,) * (batch.mask.shape[1] - steps)
    baseline = loss.baseline.clone()
    bound, mean, total = torch.zeros(()).double(), torch.zeros(1).double(), 0.0
    for places in itertools.product(range(PLACES), repeat=steps):
        report, log_words, log_places = of_one_photo(loss, batch, (*places, *padding))
        loss.baseline.copy_(baseline)  # Each draw is one that could come next.
        probability = log_places.detach().exp()
        bound = bound + log_places.exp() * log_words
        total += float(probability)
        mean = mean + probability * gradients(report["loss"], loss.decoder)
    assert total == pytest.approx(1.0, abs=1e-12)
    return mean, gradients(bound, loss.decoder)


def assert_equal(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def two_words() -> CaptioningBatch:
    """One caption of two words and a step of padding: nine draws that count."""
    batch = make_batch()
    batch.mask[0, -1] = False
    return batch


@pytest.mark.parametrize(
    ("batch", "baseline", "smoothing"),
    [(make_batch(), -1.3, 0.0), (two_words(), 0.0, 0.0), (two_words(), 40.0, 0.2)],
)
def test_the_expected_gradient_is_that_of_the_lower_bound(
    batch: CaptioningBatch, baseline: float, smoothing: float
) -> None:
    loss = make_loss(label_smoothing=smoothing)
    loss.baseline.fill_(baseline)
    mean, bound = enumerate_draws(loss, batch)
    assert_equal(mean, -bound)
    assert bound.abs().max() > 0.1


@pytest.mark.slow
def test_two_draws_have_the_same_mean_gradient() -> None:
    """Every pair of draws, weighted by its probability."""
    batch = two_words()
    _, bound = enumerate_draws(make_loss(), batch)
    loss = make_loss(draws=2)
    mean = torch.zeros_like(bound)
    every = [(*places, 0) for places in itertools.product(range(PLACES), repeat=2)]
    for draws in itertools.product(every, repeat=2):
        report, said = with_places(loss, batch, [draws])  # (1, 2, 3)
        probability = (said.log_probability * batch.mask).sum().detach().exp()
        gradient = gradients(report["loss"], loss.decoder)
        mean += probability * gradient
    assert_equal(mean, -bound)
    loss.baseline.fill_(40.0)  # That of single draws has no part.
    report, _ = with_places(loss, batch, [draws])
    assert_equal(gradients(report["loss"], loss.decoder), gradient)


def test_the_entropy_term_has_the_gradient_of_the_entropy() -> None:
    batch, places = make_batch(), (2, 2, 0)
    loss = make_loss()
    plain, log_words, _ = of_one_photo(loss, batch, places)
    torch.testing.assert_close(plain["loss"], -log_words)
    assert float(plain["cross_entropy"]) == pytest.approx(-float(log_words.detach()) / STEPS)
    report, said = with_places(make_loss(loss.decoder, entropy_weight=0.4), batch, [[places]])
    entropy = -(said.weights * said.weights.log()).sum()
    assert float(report["entropy"]) == pytest.approx(float(entropy.detach()) / STEPS)
    torch.testing.assert_close(report["loss"], plain["loss"] - 0.4 * entropy)
    expected = gradients(entropy, loss.decoder)
    found, without = (gradients(each["loss"], loss.decoder) for each in (report, plain))
    assert_equal(found - without, -0.4 * expected)
    assert expected.abs().max() > 0.01


@pytest.mark.parametrize("draws", [1, 3])
def test_semi_sampling_of_everything_is_soft_attention(draws: int) -> None:
    """Whatever places are drawn."""
    batch, loss = make_batch(4, seed=11), make_loss(semi_sampling=1.0, draws=draws)
    soft = CaptioningLoss(make_decoder("soft"), ObjectiveConfig(doubly_stochastic=0.0))
    found, expected = loss.loss(batch), soft.loss(batch)
    for name in ("loss", "cross_entropy"):
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-12)
    wanted = gradients(expected["loss"], soft.decoder)
    assert_equal(gradients(found["loss"], loss.decoder), wanted)
    assert loss.baseline.item() == pytest.approx(-math.log(WORDS), abs=1e-6)  # nothing was drawn


def test_the_baseline_is_a_moving_average_of_the_drawn_captions_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loss, batch = make_loss(semi_sampling=0.5), make_batch(3)
    assert loss.baseline.item() == pytest.approx(-math.log(WORDS), abs=1e-6)
    loss.baseline.fill_(-2.0)
    # The second is given expected values.
    monkeypatch.setattr(torch, "rand", lambda *_, **__: torch.tensor([0.9, 0.1, 0.9]))
    places = [[[0, 1, 2]], [[2, 2, 1]], [[1, 0, 0]]]
    report, said = with_places(loss, batch, places, torch.tensor([[False], [True], [False]]))
    rewards = -cross_entropies(said.logits[:, 0], batch.targets, batch.mask)[0]
    of_draws = float((rewards[0] + rewards[2]).detach()) / 6  # two captions of three words
    assert loss.baseline.item() == pytest.approx(0.9 * -2.0 + 0.1 * of_draws)
    assert report["baseline"].item() == -2.0  # as it was when the draw was held against it
