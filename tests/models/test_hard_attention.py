"""Hard attention's gradient, against every draw there is, and the terms it is made of."""

import itertools
import math
from typing import Any

import pytest
import torch
from caption_samples import PLACES, STEPS, WORDS, gradients, make_batch, small_decoder
from torch import Tensor

from captioner.attention.selection import HardSelection
from captioner.models.caption_losses import CaptioningBatch, CaptioningLoss, ObjectiveConfig
from captioner.models.cross_entropy import cross_entropies
from captioner.models.reinforce import HardAttentionLoss
from captioner.models.show_attend_tell import ShowAttendTellDecoder


class Given(HardSelection):
    """Places (B, K, T) that are given, in place of draws."""

    def __init__(self, places: Tensor) -> None:
        super().__init__()
        self.places = iter(places.unbind(dim=-1))

    def choose(self, log_weights: Tensor, generator: torch.Generator | None) -> Tensor:
        return next(self.places)


def make_loss(decoder: ShowAttendTellDecoder | None = None, **options: float) -> HardAttentionLoss:
    fields = {"doubly_stochastic": 0.0, "entropy_weight": 0.0, "semi_sampling": 0.0}
    fields |= {"reward_weight": 1.0, **options}
    decoder = decoder or small_decoder(selection="hard", dropout=0.0)
    return HardAttentionLoss(decoder, ObjectiveConfig(**fields)).double()  # type: ignore[arg-type]


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


def assert_equal(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def two_words() -> CaptioningBatch:
    """One caption of two words and a step of padding: nine draws that count."""
    batch = make_batch()
    batch.mask[0, -1] = False
    return batch


@pytest.mark.parametrize(
    ("batch", "baseline", "smoothing", "draws"),
    [
        (make_batch(), -1.3, 0.0, 1),
        (two_words(), 40.0, 0.2, 1),
        pytest.param(two_words(), 40.0, 0.0, 2, marks=pytest.mark.slow),
    ],
)
def test_the_expected_gradient_is_that_of_the_lower_bound(
    batch: CaptioningBatch, baseline: float, smoothing: float, draws: int
) -> None:
    """By all places there are for one photo, weighted by their probability.

    The bound, the sum of p(s | a) log p(y | s, a), has its gradient from autograd alone.
    """
    loss, steps = make_loss(label_smoothing=smoothing, draws=draws), int(batch.mask.sum())
    bound, mean, total = torch.zeros(()).double(), torch.zeros(1).double(), 0.0
    every = [(*each, 0, 0)[:STEPS] for each in itertools.product(range(PLACES), repeat=steps)]
    for places in itertools.product(every, repeat=draws):
        loss.baseline.fill_(baseline)
        report, said = with_places(loss, batch, [places])
        probability = (said.log_probability[0] * batch.mask).sum().exp()
        targets, mask = (each.expand(draws, -1) for each in (batch.targets, batch.mask))
        losses = cross_entropies(said.logits[0], targets, mask, smoothing)[0]  # (N,)
        bound = bound - probability * losses.mean()
        total += float(probability.detach())
        mean = mean + probability.detach() * gradients(report["loss"], loss.decoder)
    assert total == pytest.approx(1.0, abs=1e-12)
    expected = gradients(bound, loss.decoder)
    assert_equal(mean, -expected)
    assert expected.abs().max() > 0.1


def test_the_entropy_term_has_the_gradient_of_the_entropy() -> None:
    batch, places, loss = make_batch(), [[(2, 2, 0)]], make_loss()
    plain, said = with_places(loss, batch, places)
    words = cross_entropies(said.logits[:, 0], batch.targets, batch.mask)[0].sum()
    torch.testing.assert_close(plain["loss"], words)
    torch.testing.assert_close(plain["cross_entropy"], words.detach() / STEPS)
    report, said = with_places(make_loss(loss.decoder, entropy_weight=0.4), batch, places)
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
    soft = CaptioningLoss(small_decoder(dropout=0.0), ObjectiveConfig(doubly_stochastic=0.0))
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
