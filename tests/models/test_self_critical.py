"""Self-critical training: its gradient against every caption there is, and its terms."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from caption_samples import WORDS, gradients, make_batch, small_decoder, stepped
from torch import Tensor

from captioner.attention.memory import Memory
from captioner.decoding.loop import BeamSearch, Strategy
from captioner.models.caption_losses import CaptioningLoss, ObjectiveConfig, SelfCriticalConfig
from captioner.models.reinforce import SelfCriticalLoss
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.text.vocabulary import Vocabulary

END = Vocabulary.end
Captions = list[list[list[int]]]


def worth(row: int, caption: Sequence[int]) -> float:
    """Some number that depends on the photo, on every word, on their order and on the end."""
    return sum((word + 1) * 0.3**place for place, word in enumerate(caption)) * (row + 1) - 2


def reward(rows: Tensor, captions: Sequence[Sequence[Sequence[int]]]) -> Tensor:
    pairs = zip(rows.tolist(), captions, strict=True)
    worths = [[worth(row, caption) for caption in each] for row, each in pairs]
    return torch.tensor(worths, dtype=torch.float64)


class Given(SelfCriticalLoss):
    """Captions that are given in place of drawn ones."""

    given: Captions

    def _captions(self, memory: Memory, strategy: Strategy) -> Captions:
        is_greedy = isinstance(strategy, BeamSearch)
        return super()._captions(memory, strategy) if is_greedy else self.given


def make_loss(kind: Any = SelfCriticalLoss, dropout: float = 0.5, **options: Any) -> Any:
    fields = {"samples": 2, "maximum_length": 2, **options}
    objective = ObjectiveConfig(self_critical=SelfCriticalConfig(**fields))
    return kind(small_decoder(dropout=dropout), objective, reward)


def all_captions(maximum_length: int) -> Iterator[list[int]]:
    """Every caption that can be drawn: ended by itself, or cut."""
    others = [word for word in range(WORDS) if word != END]
    for length in range(maximum_length + 1):
        for words in itertools.product(others, repeat=length):
            yield list(words) if length == maximum_length else [*words, END]


def probability(decoder: ShowAttendTellDecoder, source: Tensor, caption: list[int]) -> Tensor:
    """p(caption), by the decoder's step, word for word."""
    fed = torch.tensor([[[Vocabulary.start, *caption[:-1]]]])
    said = stepped(decoder, decoder.remember(source), fed)
    return said.logits[0, 0].softmax(dim=-1)[range(len(caption)), caption].prod()


@pytest.mark.slow
@pytest.mark.parametrize(("baseline", "samples", "longest"), [("new", 2, 2), ("greedy", 1, 3)])
def test_the_gradient_is_on_average_that_of_the_expected_reward(
    baseline: str, samples: int, longest: int
) -> None:
    """By every set of captions that may be drawn, weighted by its probability."""
    loss = make_loss(Given, baseline=baseline, samples=samples, maximum_length=longest)
    decoder, batch = loss.decoder, make_batch()
    decoder.eval()  # The expected reward is that in use: without dropout.
    chances = [(each, probability(decoder, batch.source, each)) for each in all_captions(longest)]
    decoder.train()
    assert sum(float(p.detach()) for _, p in chances) == pytest.approx(1.0, abs=1e-12)
    total = torch.zeros((), dtype=torch.float64)
    for drawn in itertools.product(chances, repeat=samples):
        loss.given = [[caption for caption, _ in drawn]]
        chance = math.prod(float(p.detach()) for _, p in drawn)
        total = total + chance * loss.loss(batch)["loss"]
    reward = torch.stack([p * worth(0, each) for each, p in chances]).sum()
    expected = gradients(reward, decoder)
    assert expected.abs().max() > 0.01
    torch.testing.assert_close(gradients(total, decoder), -expected, rtol=0, atol=1e-10)


def test_the_loss_by_hand() -> None:
    """Two photos, two samples each: a sample is held against the other of its photo."""
    loss = make_loss(Given)
    batch = make_batch(2)
    loss.given = [[[4, 3], [END]], [[4, END], [3, 3]]]
    loss.decoder.eval()
    pairs = [(row, each) for row, captions in enumerate(loss.given) for each in captions]
    logs = [probability(loss.decoder, batch.source[[row]], each).log() for row, each in pairs]
    worths = [worth(row, each) for row, each in pairs]
    first, second = worths[0] - worths[1], worths[2] - worths[3]
    expected = -(first * (logs[0] - logs[1]) + second * (logs[2] - logs[3])) / 4
    found = loss.loss(batch)
    torch.testing.assert_close(found["loss"], expected)
    assert float(found["length"]) == pytest.approx((2 + 0 + 1 + 2) / 4)
    assert float(found["finished"]) == 0.5
    assert float(found["reward"]) == pytest.approx(sum(worths) / 4)


def test_cross_entropy_is_added_by_its_weight() -> None:
    batch = make_batch(2)
    mixed = make_loss(dropout=0.0, cross_entropy_weight=0.7).loss(batch)
    alone = make_loss(dropout=0.0).loss(batch)
    plain = CaptioningLoss(small_decoder(dropout=0.0), ObjectiveConfig()).loss(batch)
    torch.testing.assert_close(mixed["loss"], alone["loss"] + 0.7 * plain["loss"])
    assert torch.equal(mixed["cross_entropy"], plain["cross_entropy"])
