"""Scheduled sampling: which words are fed, and from what they are drawn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from captioner.caption.decoder import DecoderConfig, ShowAttendTellDecoder
from captioner.caption.hard_attention import HardAttentionLoss
from captioner.caption.objective import ObjectiveConfig
from captioner.caption.scheduled_sampling import scheduled_inputs
from captioner.caption.training import CaptioningBatch, CaptioningLoss

WORDS = 9


def make_decoder(sharpness: float = 1.0, **options: Any) -> ShowAttendTellDecoder:
    """A decoder in training mode, with dropout; the sharper, the surer of its words."""
    torch.manual_seed(1)
    sizes = {"embedding_size": 6, "hidden_size": 7, "attention_size": 5, "memory_size": 8}
    decoder = ShowAttendTellDecoder(DecoderConfig(**{**sizes, **options}), WORDS)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    decoder.output.weight.data *= sharpness
    decoder.output.bias.data[2] = -1e6  # It never ends.
    return decoder


def annotations(photos: int) -> Tensor:
    return torch.randn(photos, 4, 8, generator=torch.Generator().manual_seed(2))


def inputs(photos: int, steps: int = 6) -> Tensor:
    words = torch.randint(3, WORDS, (photos, steps), generator=torch.Generator().manual_seed(4))
    words[:, 0] = 1
    return words


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_words_are_drawn_from_what_the_decoder_gives() -> None:
    decoder = make_decoder()
    photos = 20000
    memory = decoder.remember(annotations(1).expand(photos, -1, -1))
    fed = scheduled_inputs(decoder, memory, inputs(photos, 2), 1.0, generator())
    decoder.eval()
    step = decoder.step(torch.tensor([[1]]), decoder.start(decoder.remember(annotations(1))))
    chances = torch.softmax(step.logits[0, 0], dim=-1)
    shares = torch.bincount(fed[:, 1], minlength=WORDS) / photos
    torch.testing.assert_close(shares, chances, rtol=0, atol=0.015)


def test_each_word_is_drawn_for_itself_and_the_next_follows_it() -> None:
    decoder = make_decoder(sharpness=1e4)
    photos = 4000
    memory = decoder.remember(annotations(1).expand(photos, -1, -1))
    given = torch.tensor([[1, 3, 4, 5]]).expand(photos, -1)
    fed = scheduled_inputs(decoder, memory, given, 0.3, generator())
    assert bool((fed[:, 0] == 1).all())
    decoder.eval()
    one = decoder.remember(annotations(1))
    for words in set(map(tuple, fed.tolist())):
        state: object = decoder.start(one)
        for time in range(3):
            step = decoder.step(torch.tensor([[words[time]]]), state)
            state = step.state
            # Its own word after the words fed so far, or the caption's.
            assert words[time + 1] in (int(step.logits.argmax()), int(given[0, time + 1]))
    own = (fed[:, 1:] != given[:, 1:]).float().mean(dim=0)
    assert bool((own < 0.34).all())
    assert float(own[0]) == pytest.approx(0.3, abs=0.04)


def test_the_decoder_is_left_in_its_mode_and_gets_no_gradient() -> None:
    decoder = make_decoder()
    fed = scheduled_inputs(decoder, decoder.remember(annotations(2)), inputs(2), 0.5, generator())
    assert decoder.training
    assert not fed.requires_grad


def make_batch(progress: float, seed: int = 0) -> CaptioningBatch:
    given = inputs(4)
    return CaptioningBatch(
        annotations(4), given, given, torch.ones_like(given, dtype=torch.bool), seed, None, progress
    )


@pytest.mark.parametrize("selection", ["soft", "hard"])
def test_the_probability_rises_with_progress(selection: str) -> None:
    decoder = make_decoder(selection=selection, dropout=0.0)
    loss = CaptioningLoss if selection == "soft" else HardAttentionLoss

    def value(probability: float, progress: float, seed: int = 0) -> float:
        objective = ObjectiveConfig(doubly_stochastic=0.0, scheduled_sampling=probability)
        return float(loss(decoder, objective).loss(make_batch(progress, seed))["cross_entropy"])

    assert value(0.5, 0.0) == value(0.0, 0.0) == value(0.0, 1.0)
    assert value(0.5, 1.0) == value(1.0, 0.5)
    assert value(1.0, 1.0) != value(0.0, 1.0)
    assert value(0.5, 1.0) != value(0.5, 1.0, seed=1)
