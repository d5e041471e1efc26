"""Hard attention's gradient, against every draw there is, and the terms it is made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from gradient_samples import MEMORY, PLACES, WORDS, gradients, small_decoder
from torch import Tensor

from captioner.attention import HardSelection
from captioner.caption.decoder import ShowAttendTellDecoder
from captioner.caption.hard_attention import HardAttentionLoss
from captioner.caption.objective import ObjectiveConfig
from captioner.caption.training import CaptioningBatch, CaptioningLoss
from captioner.decoding import cross_entropies
from captioner.errors import UserError
from captioner.vision.vgg import VGGConfig, VGGEncoder

STEPS = 3
"""T of the captions here."""

Gradients = list[Tensor]


class Given(HardSelection):
    """Places that are given, in place of a draw: for each step (B, K)."""

    def __init__(self, places: Iterable[Tensor]) -> None:
        super().__init__()
        self.places = iter(places)

    def choose(self, log_weights: Tensor, generator: torch.Generator | None) -> Tensor:
        return next(self.places)


def make_decoder(selection: str = "hard", **options: Any) -> ShowAttendTellDecoder:
    return small_decoder(selection=selection, **{"dropout": 0.0, **options})


def make_loss(decoder: ShowAttendTellDecoder | None = None, **options: float) -> HardAttentionLoss:
    fields = {"doubly_stochastic": 0.0, "entropy_weight": 0.0, "semi_sampling": 0.0}
    fields |= {"reward_weight": 1.0, **options}
    return HardAttentionLoss(decoder or make_decoder(), ObjectiveConfig(**fields)).double()  # type: ignore[arg-type]


def make_batch(captions: int = 1, seed: int = 0) -> CaptioningBatch:
    """Photos whose places differ, and captions of three words, two, three, two and so on."""
    generator = torch.Generator().manual_seed(5)
    source = torch.randn(captions, PLACES, MEMORY, generator=generator, dtype=torch.float64)
    inputs = torch.randint(WORDS, (captions, STEPS), generator=generator)
    targets = torch.randint(WORDS, (captions, STEPS), generator=generator)
    mask = torch.ones(captions, STEPS, dtype=torch.bool)
    mask[1::2, -1] = False
    return CaptioningBatch(source * 2, inputs, targets, mask, seed)


def with_places(
    loss: HardAttentionLoss, batch: CaptioningBatch, places: tuple[int, ...]
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """What the loss says where one photo's places are given, log p(y | s, a) and log p(s | a)."""
    steps = [torch.tensor([[place]]) for place in places]
    loss.decoder.attention.selection = Given(steps)
    report = loss.loss(batch)
    loss.decoder.attention.selection = Given(steps)
    said = loss.decoder(loss.decoder.remember(batch.source), batch.inputs.unsqueeze(1))
    loss.decoder.attention.selection = HardSelection()
    log_words = -cross_entropies(said.logits[:, 0], batch.targets, batch.mask).smoothed.sum()
    log_places = (said.log_probability[:, 0] * batch.mask).sum()
    return report, log_words, log_places


def enumerate_draws(
    loss: HardAttentionLoss, batch: CaptioningBatch
) -> tuple[Gradients, Gradients, Gradients]:
    """Every draw for one photo, weighted by its probability.

    Gives the mean of the loss's gradient, the mean of its square, and, from autograd alone, the
    gradient of the lower bound, the sum of p(s | a) log p(y | s, a).
    """
    steps = int(batch.mask.sum())
    assert batch.mask[0, :steps].all()
    padding = (0,) * (batch.mask.shape[1] - steps)
    baseline = loss.baseline.clone()
    bound = torch.zeros((), dtype=torch.float64)
    total = 0.0
    mean = [torch.zeros_like(p) for p in loss.decoder.parameters()]
    square = [torch.zeros_like(p) for p in loss.decoder.parameters()]
    for places in itertools.product(range(PLACES), repeat=steps):
        report, log_words, log_places = with_places(loss, batch, (*places, *padding))
        loss.baseline.copy_(baseline)  # Each draw is one that could come next.
        probability = log_places.detach().exp()
        bound = bound + log_places.exp() * log_words
        total += float(probability)
        for index, gradient in enumerate(gradients(report["loss"], loss.decoder)):
            mean[index] += probability * gradient
            square[index] += probability * gradient.square()
    assert total == pytest.approx(1.0, abs=1e-12)
    return mean, square, gradients(bound, loss.decoder)


def assert_equal(found: Gradients, expected: Gradients) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def largest(found: Gradients) -> float:
    return max(float(gradient.abs().max()) for gradient in found)


# The gradient, on average.


def two_words() -> CaptioningBatch:
    """One caption of two words and a step of padding: nine draws that count."""
    batch = make_batch()
    batch.mask[0, -1] = False
    return batch


@pytest.mark.parametrize(
    ("batch", "baseline"),
    [(make_batch(), -1.3), (two_words(), 0.0), (two_words(), 40.0)],
    ids=["three words", "two words and no baseline", "two words and a far baseline"],
)
def test_the_expected_gradient_is_that_of_the_lower_bound(
    batch: CaptioningBatch, baseline: float
) -> None:
    loss = make_loss()
    loss.baseline.fill_(baseline)
    mean, _, bound = enumerate_draws(loss, batch)
    assert_equal(mean, [-gradient for gradient in bound])
    assert largest(bound) > 0.1


def test_the_expected_gradient_with_label_smoothing_is_that_of_the_smoothed_bound() -> None:
    loss, batch = make_loss(label_smoothing=0.2), two_words()
    mean, _, _ = enumerate_draws(loss, batch)
    # Without a reward the report's loss is the smoothed cross-entropy of the draw and no more.
    plain = make_loss(loss.decoder, label_smoothing=0.2, reward_weight=0.0)
    bound = torch.zeros((), dtype=torch.float64)
    for places in itertools.product(range(PLACES), repeat=2):
        report, _, log_places = with_places(plain, batch, (*places, 0))
        bound = bound + log_places.exp() * report["loss"]
    assert_equal(mean, gradients(bound, loss.decoder))


def test_the_baseline_changes_the_variance_and_not_the_mean() -> None:
    loss, batch = make_loss(), two_words()
    found = {}
    for baseline in (-10.0, 0.0, -math.log(WORDS)):
        loss.baseline.fill_(baseline)
        mean, square, _ = enumerate_draws(loss, batch)
        variance = sum(float((s - m**2).sum()) for s, m in zip(square, mean, strict=True))
        found[baseline] = (mean, variance)
    assert_equal(found[-10.0][0], found[0.0][0])
    assert_equal(found[-math.log(WORDS)][0], found[0.0][0])
    # What a decoder says that knows nothing is nearer to what this one says than nothing is.
    assert found[-math.log(WORDS)][1] < 0.8 * found[0.0][1]
    assert found[-10.0][1] > 2 * found[0.0][1]


def with_two_draws(
    loss: HardAttentionLoss, batch: CaptioningBatch, draws: tuple[tuple[int, ...], ...]
) -> tuple[Gradients, float]:
    """The loss's gradient where the places of both draws are given, and their probability."""
    loss.decoder.attention.selection = Given(
        torch.tensor([[each[step] for each in draws]]) for step in range(STEPS)
    )
    report = loss.loss(batch)
    loss.decoder.attention.selection = HardSelection()
    probability = 1.0
    for places in draws:
        _, _, log_places = with_places(make_loss(loss.decoder), batch, places)
        probability *= float(log_places.detach().exp())
    return gradients(report["loss"], loss.decoder), probability


def test_two_draws_have_the_same_mean_gradient_and_less_noise() -> None:
    """Every pair of draws, weighted by its probability; and a caption that is hard to say."""
    batch = two_words()
    single = make_loss()
    single.baseline.fill_(10.0)  # What other captions say: this one is far less probable.
    _, square, bound = enumerate_draws(single, batch)
    loss = make_loss(single.decoder, draws=2)
    mean = [torch.zeros_like(p) for p in loss.decoder.parameters()]
    noise = 0.0
    every = [(*places, 0) for places in itertools.product(range(PLACES), repeat=2)]
    for draws in itertools.product(every, repeat=2):
        found, probability = with_two_draws(loss, batch, draws)
        for index, gradient in enumerate(found):
            mean[index] += probability * gradient
            noise += probability * float((gradient + bound[index]).square().sum())
    assert_equal(mean, [-gradient for gradient in bound])
    alone = sum(float((s - b**2).sum()) for s, b in zip(square, bound, strict=True))
    assert noise < 0.1 * alone


def test_draws_of_a_caption_differ_by_their_places_alone() -> None:
    """Dropout is the same for all of them."""
    loss = make_loss(make_decoder(dropout=0.5), draws=4)
    batch = make_batch(3)
    places = torch.tensor([[0, 1, 2], [2, 2, 1], [1, 0, 0]])
    torch.manual_seed(0)
    loss.decoder.attention.selection = Given(places[:, t, None].expand(-1, 4) for t in range(STEPS))
    fed = batch.inputs.unsqueeze(1).expand(-1, 4, -1)
    said = loss.decoder(loss.decoder.remember(batch.source), fed)
    assert torch.equal(said.logits[:, :1].expand_as(said.logits), said.logits)
    loss.decoder.eval()
    loss.decoder.attention.selection = Given(places[:, t, None].expand(-1, 4) for t in range(STEPS))
    plain = loss.decoder(loss.decoder.remember(batch.source), fed)
    assert not torch.allclose(said.logits, plain.logits)


# The terms of one draw.


def test_the_gradient_of_a_draw_by_equation_12() -> None:
    loss, batch = make_loss(reward_weight=0.7), make_batch()
    loss.baseline.fill_(-0.9)
    report, log_words, log_places = with_places(loss, batch, (1, 0, 2))
    advantage = float(log_words.detach()) - 3 * -0.9  # three words
    expected = gradients(-log_words - 0.7 * advantage * log_places, loss.decoder)
    assert_equal(gradients(report["loss"], loss.decoder), expected)
    torch.testing.assert_close(report["loss"], -log_words)
    assert float(report["cross_entropy"]) == pytest.approx(-float(log_words.detach()) / STEPS)


def test_the_entropy_term_has_the_gradient_of_the_entropy() -> None:
    batch, places = make_batch(), (2, 2, 0)
    plain, _, _ = with_places(make_loss(), batch, places)
    loss = make_loss(entropy_weight=0.4)
    report, _, _ = with_places(loss, batch, places)
    loss.decoder.attention.selection = Given(torch.tensor([[place]]) for place in places)
    said = loss.decoder(loss.decoder.remember(batch.source), batch.inputs.unsqueeze(1))
    entropy = -(said.weights * said.weights.log()).sum()
    assert float(report["entropy"]) == pytest.approx(float(entropy.detach()) / STEPS)
    assert float(report["loss"].detach()) == pytest.approx(
        float((plain["loss"] - 0.4 * entropy).detach())
    )
    expected = gradients(entropy, loss.decoder)
    bare, _, _ = with_places(make_loss(loss.decoder), batch, places)
    both = (gradients(each["loss"], loss.decoder) for each in (report, bare))
    difference = [a - b for a, b in zip(*both, strict=True)]
    assert_equal(difference, [-0.4 * gradient for gradient in expected])
    assert largest(expected) > 0.01


# Semi-sampling.


@pytest.mark.parametrize("draws", [1, 3])
def test_semi_sampling_of_everything_is_soft_attention(draws: int) -> None:
    """Whatever places are drawn."""
    batch, loss = make_batch(4, seed=11), make_loss(semi_sampling=1.0, draws=draws)
    soft = CaptioningLoss(make_decoder("soft"), ObjectiveConfig(doubly_stochastic=0.0))
    found, expected = loss.loss(batch), soft.loss(batch)
    for name in ("loss", "cross_entropy"):
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-12)
    wanted = torch.autograd.grad(expected["loss"], list(soft.decoder.parameters()))
    assert_equal(gradients(found["loss"], loss.decoder), list(wanted))
    assert loss.baseline.item() == pytest.approx(-math.log(WORDS), abs=1e-6)  # nothing was drawn


def test_half_of_the_captions_are_semi_sampled_each_for_itself() -> None:
    loss, seen = make_loss(semi_sampling=0.5), []
    loss.decoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[3]))
    for seed in range(10):
        loss.loss(make_batch(100, seed))
    shares = [float(flags.double().mean()) for flags in seen]
    assert all(flags.shape == (100, 1) for flags in seen)
    assert sum(shares) / 10 == pytest.approx(0.5, abs=0.06)
    assert all(0.3 < share < 0.7 for share in shares)  # a mixture within every batch


def test_a_mixed_batch_is_its_captions_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, places = make_batch(4), torch.tensor([[0, 1, 2], [2, 2, 1], [1, 0, 0], [0, 2, 0]])
    expected = torch.tensor([True, False, False, True])
    loss = make_loss(semi_sampling=0.5, entropy_weight=0.1)

    def run(rows: slice) -> dict[str, Tensor]:
        loss.decoder.attention.selection = Given(places[rows].T.unsqueeze(-1))  # (B, 1) a step
        uniform = torch.where(expected, 0.0, 0.9)[rows]
        monkeypatch.setattr(torch, "rand", lambda *_, **__: uniform)
        report = loss.loss(
            CaptioningBatch(
                batch.source[rows], batch.inputs[rows], batch.targets[rows], batch.mask[rows]
            )
        )
        loss.baseline.fill_(-0.5)
        return report

    run(slice(None))
    together = run(slice(None))
    alone = [run(slice(index, index + 1)) for index in range(4)]
    torch.testing.assert_close(together["loss"], sum(one["loss"] for one in alone) / 4)
    parts = [gradients(one["loss"], loss.decoder) for one in alone]
    mean = [torch.stack(gradient).mean(dim=0) for gradient in zip(*parts, strict=True)]
    assert_equal(gradients(together["loss"], loss.decoder), mean)


# The baseline.


def test_the_baseline_is_a_moving_average_of_the_drawn_captions_a_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loss, batch = make_loss(semi_sampling=0.5), make_batch(3)
    assert loss.baseline.item() == pytest.approx(-math.log(WORDS), abs=1e-6)
    loss.baseline.fill_(-2.0)
    uniform = torch.tensor([0.9, 0.1, 0.9])  # the second is given expected values
    monkeypatch.setattr(torch, "rand", lambda *_, **__: uniform)
    places = torch.tensor([[0, 1, 2], [2, 2, 1], [1, 0, 0]])
    loss.decoder.attention.selection = Given(places.T.unsqueeze(-1))
    report = loss.loss(batch)
    loss.decoder.attention.selection = Given(places.T.unsqueeze(-1))
    said = loss.decoder(
        loss.decoder.remember(batch.source),
        batch.inputs.unsqueeze(1),
        None,
        torch.tensor([[False], [True], [False]]),
    )
    rewards = -cross_entropies(said.logits[:, 0], batch.targets, batch.mask).smoothed
    of_draws = float((rewards[0] + rewards[2]).detach()) / 6  # two captions of three words
    assert loss.baseline.item() == pytest.approx(0.9 * -2.0 + 0.1 * of_draws)
    assert report["baseline"].item() == -2.0  # as it was when the draw was held against it
    assert not loss.baseline.requires_grad


def test_what_is_resumed_between_two_steps_is_as_it_would_have_been() -> None:
    """Each step in two parts; behind the first a new loss is given the weights and buffers."""
    found = []
    for resumed in (False, True):
        loss = make_loss(make_decoder())
        for step in range(2):
            if resumed and step == 1:
                state = loss.state_dict()
                loss = make_loss(make_decoder())
                loss.load_state_dict(state)
            optimizer = torch.optim.SGD(loss.decoder.parameters(), lr=0.1)
            optimizer.zero_grad()
            for part in range(2):
                loss.loss(make_batch(2, seed=10 * step + part))["loss"].backward()
            optimizer.step()
        found.append([loss.baseline, *loss.decoder.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_validation_does_not_change_the_baseline() -> None:
    loss, batch = make_loss(), make_batch(2)
    loss.loss(batch)
    after = float(loss.baseline)
    loss.eval()
    assert float(loss.loss(batch)["baseline"]) == after == float(loss.baseline)


# The rest.


def test_the_seed_of_the_batch_decides_what_is_drawn() -> None:
    loss = make_loss(semi_sampling=0.5).eval()
    loss.decoder.attention.selection.train()

    def value(seed: int) -> float:
        torch.manual_seed(torch.seed() % 1000)  # the global generator plays no part
        return float(loss.loss(make_batch(6, seed))["loss"].detach())

    assert value(1) == value(1)
    assert len({value(seed) for seed in range(6)}) == 6


def test_a_padded_caption_is_the_caption_without_its_padding() -> None:
    loss, padded = make_loss(entropy_weight=0.2), two_words()
    cut = CaptioningBatch(
        padded.source, padded.inputs[:, :2], padded.targets[:, :2], padded.mask[:, :2]
    )
    found = []
    for batch, places in ((padded, (1, 2, 0)), (cut, (1, 2))):
        loss.baseline.fill_(-1.0)
        report, _, _ = with_places(loss, batch, places)
        found.append((report, gradients(report["loss"], loss.decoder), loss.baseline.clone()))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert_equal(found[0][1], found[1][1])
    torch.testing.assert_close(found[0][2], found[1][2])


def test_an_encoder_is_trained_along_where_it_is_given() -> None:
    encoder = VGGEncoder(VGGConfig(name="vgg11", width=0.05)).double()
    decoder = make_decoder(memory_size=512)
    loss = HardAttentionLoss(decoder, ObjectiveConfig(doubly_stochastic=0.0), encoder).double()
    batch = make_batch(2)._replace(source=torch.randn(2, 3, 32, 32).double())
    (gradient,) = torch.autograd.grad(loss.loss(batch)["loss"], [next(encoder.parameters())])
    assert gradient.abs().sum() > 0


def test_soft_attention_and_its_terms_are_refused() -> None:
    with pytest.raises(UserError, match=r"^REINFORCE trains hard attention"):
        HardAttentionLoss(make_decoder("soft"), ObjectiveConfig(doubly_stochastic=0.0))
    with pytest.raises(
        UserError, match=r"^objective\.doubly_stochastic 1\.0 is for soft attention"
    ):
        HardAttentionLoss(make_decoder(), ObjectiveConfig())
