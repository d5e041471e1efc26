"""The cross-entropy loss: its terms by hand, and put together."""

import math

import pytest
import torch
from caption_samples import WORDS, make_batch, small_decoder, stepped
from torch import Tensor

from captioner.models.caption_losses import (
    CaptioningBatch,
    CaptioningLoss,
    ObjectiveConfig,
    doubly_stochastic_penalty,
    grounding_penalty,
)
from captioner.models.cross_entropy import cross_entropies
from captioner.models.reinforce import HardAttentionLoss
from captioner.models.show_attend_tell import ShowAttendTellDecoder
from captioner.vision.encoder import VGGEncoder
from captioner.vision.encoder_config import VGGConfig

MASK = torch.tensor([[True, True], [True, False]])
FIRST, SECOND = [[0.7, 0.1, 0.1, 0.1], [0.4, 0.4, 0.1, 0.1]], [[0.25] * 4, [1.0, 0.0, 0.0, 0.0]]
WEIGHTS = torch.tensor([FIRST, SECOND])  # (B, T, L) = (2, 2, 4)


def test_penalty_by_hand() -> None:
    # Received: 1.1, 0.5, 0.2, 0.2; and 0.25 each, the padding left out.
    expected = [0.1**2 + 0.5**2 + 0.8**2 + 0.8**2, 4 * 0.75**2]
    torch.testing.assert_close(doubly_stochastic_penalty(WEIGHTS, MASK), torch.tensor(expected))
    half = doubly_stochastic_penalty(WEIGHTS.bfloat16(), MASK)
    assert torch.equal(half, doubly_stochastic_penalty(WEIGHTS.bfloat16().float(), MASK))


def test_attention_that_misses_what_a_word_names_is_penalised() -> None:
    weights = torch.tensor([[[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.2, 0.4, 0.4]]])  # (1, 3, 3)
    # The first word names the first place, the second half of the last; the third nothing.
    places = torch.tensor([[[1.0, 0, 0], [0, 0, 0.5], [0, 0, 0]]])
    penalty = grounding_penalty(weights, places)
    assert penalty.tolist() == pytest.approx([-math.log(0.5) - math.log(0.4)])
    nowhere = grounding_penalty(torch.tensor([[[0.0, 1.0]]]), torch.tensor([[[1.0, 0.0]]]))
    assert 50 < float(nowhere) < 1000


@pytest.mark.parametrize(("weight", "smoothing"), [(0.0, 0.2), (0.5, 0.0)])
def test_the_loss_is_the_mean_over_captions_of_its_terms(weight: float, smoothing: float) -> None:
    decoder, batch = small_decoder(dropout=0.0), make_batch(2)  # Of three words, and of two.
    objective = ObjectiveConfig(doubly_stochastic=weight, label_smoothing=smoothing)
    found = CaptioningLoss(decoder, objective).loss(batch)
    said = decoder(decoder.remember(batch.source), batch.inputs.unsqueeze(1))
    logits, weights = said.logits[:, 0], said.weights[:, 0]
    terms, plain = cross_entropies(logits, batch.targets, batch.mask, smoothing)
    terms = terms + weight * doubly_stochastic_penalty(weights, batch.mask)
    torch.testing.assert_close(found["loss"], (terms[0] + terms[1]) / 2)
    torch.testing.assert_close(found["cross_entropy"], plain.sum() / 5)
    assert [name for name, value in found.items() if value.requires_grad] == ["loss"]


def test_captions_of_one_photo_share_what_the_encoder_sees_of_it() -> None:
    decoder, photos = small_decoder(memory_size=512, dropout=0.0).float(), torch.randn(1, 3, 32, 32)
    encoder = VGGEncoder(VGGConfig(name="vgg11", width=0.05)).eval()
    loss = CaptioningLoss(decoder, ObjectiveConfig(), encoder)
    batch = make_batch(2)
    apart = loss.loss(batch._replace(source=photos.expand(2, -1, -1, -1)))["loss"]
    wanted = torch.autograd.grad(apart, list(loss.parameters()))
    found = loss.loss(batch._replace(source=photos, photos=torch.tensor([0, 0])).to("cpu"))["loss"]
    torch.testing.assert_close(found, apart)
    gradients = torch.autograd.grad(found, list(loss.parameters()))
    torch.testing.assert_close(gradients, wanted, rtol=1e-4, atol=1e-6)


SOURCE = make_batch().source  # (1, L, D)


def of_one_photo(
    decoder: ShowAttendTellDecoder, given: list[int], count: int, probability: float
) -> Tensor:
    """The words (count, T) fed for so many captions of one photo."""
    source, words = SOURCE.expand(count, -1, -1), torch.tensor(given).expand(count, -1)
    batch = CaptioningBatch(source, words, words, words > 0, progress=probability)
    loss = CaptioningLoss(decoder, ObjectiveConfig(scheduled_sampling=1.0))
    return loss.fed_words(batch, decoder.remember(source))


def test_words_are_drawn_from_what_the_decoder_gives() -> None:
    decoder = small_decoder()
    fed = of_one_photo(decoder, [1, 3], 20000, 1.0)
    step = decoder.eval().step(torch.tensor([[1]]), decoder.start(decoder.remember(SOURCE)))
    shares = torch.bincount(fed[:, 1], minlength=WORDS).double() / 20000
    torch.testing.assert_close(shares, step.logits[0, 0].softmax(dim=-1), rtol=0, atol=0.015)


def test_each_word_is_drawn_for_itself_and_the_next_follows_it() -> None:
    decoder = small_decoder()
    decoder.output.weight.data *= 1e4  # It is sure of its words.
    given = torch.tensor([1, 3, 4, 2])
    fed = of_one_photo(decoder, given.tolist(), 4000, 0.3)
    assert (fed[:, 0] == 1).all()
    every = fed.unique(dim=0).unsqueeze(0)  # (1, K, 4)
    said = stepped(decoder.eval(), decoder.remember(SOURCE), every).logits.argmax(dim=-1)
    # Its own word after the words fed so far, or the caption's.
    assert ((every[..., 1:] == said[..., :-1]) | (every[..., 1:] == given[1:])).all()
    own = (fed[:, 1:] != given[1:]).float().mean(dim=0)
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
    assert value(0.5, 1.0) == value(1.0, 0.5) != value(0.5, 1.0, seed=1)
