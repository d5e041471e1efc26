"""Scheduled sampling: which words are fed, and from what they are drawn."""

from __future__ import annotations

import pytest
import torch
from decoder_samples import stepped
from gradient_samples import WORDS, make_batch, small_decoder
from torch import Tensor

from captioner.caption.losses import CaptioningLoss, ObjectiveConfig, scheduled_inputs
from captioner.caption.lstm import ShowAttendTellDecoder
from captioner.caption.reinforce import HardAttentionLoss

SOURCE = make_batch().source
"""The annotation vectors of a photo (1, L, D)."""


def of_one_photo(
    decoder: ShowAttendTellDecoder, given: list[int], count: int, probability: float
) -> Tensor:
    """The words (count, T) fed for so many captions of one photo."""
    memory = decoder.remember(SOURCE.expand(count, -1, -1))
    inputs = torch.tensor(given).expand(count, -1)
    return scheduled_inputs(decoder, memory, inputs, probability, torch.Generator().manual_seed(0))


def test_words_are_drawn_from_what_the_decoder_gives() -> None:
    decoder = small_decoder()
    fed = of_one_photo(decoder, [1, 3], 20000, 1.0)
    decoder.eval()
    step = decoder.step(torch.tensor([[1]]), decoder.start(decoder.remember(SOURCE)))
    chances = torch.softmax(step.logits[0, 0], dim=-1)
    shares = torch.bincount(fed[:, 1], minlength=WORDS).double() / 20000
    torch.testing.assert_close(shares, chances, rtol=0, atol=0.015)


def test_each_word_is_drawn_for_itself_and_the_next_follows_it() -> None:
    decoder = small_decoder()
    decoder.output.weight.data *= 1e4  # It is sure of its words.
    given = torch.tensor([1, 3, 4, 2])
    fed = of_one_photo(decoder, given.tolist(), 4000, 0.3)
    assert bool((fed[:, 0] == 1).all())
    decoder.eval()
    every = fed.unique(dim=0).unsqueeze(0)  # (1, K, 4)
    said = stepped(decoder, decoder.remember(SOURCE), every).logits.argmax(dim=-1)
    # Its own word after the words fed so far, or the caption's.
    assert bool(((every[..., 1:] == said[..., :-1]) | (every[..., 1:] == given[1:])).all())
    own = (fed[:, 1:] != given[1:]).float().mean(dim=0)
    assert bool((own < 0.34).all())
    assert float(own[0]) == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize("selection", ["soft", "hard"])
def test_the_probability_rises_with_progress(selection: str) -> None:
    decoder = small_decoder(selection=selection, dropout=0.0)
    loss = CaptioningLoss if selection == "soft" else HardAttentionLoss

    def value(probability: float, progress: float, seed: int = 0) -> float:
        objective = ObjectiveConfig(doubly_stochastic=0.0, scheduled_sampling=probability)
        batch = make_batch(4, seed)._replace(progress=progress)
        return float(loss(decoder, objective).loss(batch)["cross_entropy"])

    assert value(0.5, 0.0) == value(0.0, 0.0) == value(0.0, 1.0)
    assert value(0.5, 1.0) == value(1.0, 0.5)
    assert value(1.0, 1.0) != value(0.0, 1.0)
    assert value(0.5, 1.0) != value(0.5, 1.0, seed=1)
