"""Scores, contexts with and without weights, and what padding may not do."""

import math
import re

import pytest
import torch
from torch import Tensor

from captioner import cpu
from captioner.attention.attention import Attention, MultiHeadAttention
from captioner.attention.memory import Memory
from captioner.attention.scores import (
    AdditiveScore,
    ConcatScore,
    CosineScore,
    DotScore,
    GeneralScore,
    ScaledDotProductScore,
    Score,
)

SCORES = {
    "dot": lambda: DotScore(),
    "scaled dot-product": lambda: ScaledDotProductScore(),
    "general": lambda: GeneralScore(4, 4),
    "additive": lambda: AdditiveScore(4, 4, 6),
    "cosine": lambda: CosineScore(4, 4),
    "concat": lambda: ConcatScore(4, 4, 6),
}


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("name", SCORES)
def test_padding_changes_nothing(name) -> None:
    attention = Attention(SCORES[name]())
    values, query = random(2, 5, 4), random(2, 3, 4, seed=1)
    mask = torch.tensor([[True] * 3 + [False] * 2, [True] * 5])
    padded = attention(query, attention.remember(values, mask))
    alone = attention(query[:1], attention.remember(values[:1, :3]))
    torch.testing.assert_close(padded.context[:1], alone.context)
    torch.testing.assert_close(padded.weights[:1, :, :3], alone.weights)
    assert padded.weights[0, :, 3:].abs().max().item() == 0.0


def scores(score: Score) -> Tensor:
    """Of three queries of size 4 and five values of size 6, in two sources."""
    query, values = random(2, 3, 4, seed=1), random(2, 5, 6, seed=2)
    return score(query, Memory(values, score.project_keys(values)))


def test_temperature_divides_the_scores() -> None:
    plain = Attention(AdditiveScore(4, 6, 7))
    warm = Attention(plain.score, temperature=0.25)
    query, memory = random(2, 3, 4, seed=1), plain.remember(random(2, 5, 6, seed=2))
    assert_close = torch.testing.assert_close
    assert_close(warm(query, memory).scores, plain(query, memory).scores / 0.25)


def test_a_cosine_ignores_lengths_and_is_scaled() -> None:
    score = CosineScore(4, 6)
    query, values = random(1, 1, 4, seed=1), random(1, 5, 6, seed=2)
    key = score.key_projection.weight @ values[0, 3]
    expected = 10 * torch.nn.functional.cosine_similarity(query[0, 0], key, dim=0)
    for factor in (1, 7):
        memory = Memory(factor * values, score.project_keys(factor * values))
        torch.testing.assert_close(score(factor * query, memory)[0, 0, 3], expected)


def test_concat_halves_start_on_one_scale() -> None:
    torch.manual_seed(0)
    score = ConcatScore(1, 399, 500)  # separate halves would start within 1 and within 0.05
    bound = 1 / math.sqrt(400)
    for half in (score.query_projection.weight, score.key_projection.weight):
        assert half.abs().max() <= bound
        assert half.abs().max() > 0.95 * bound


@pytest.mark.parametrize("make", [AdditiveScore, ConcatScore])
def test_decoding_by_the_code_for_cpus_gives_the_same_scores(make, monkeypatch) -> None:
    score = make(4, 6, 7)
    monkeypatch.setenv(cpu.SWITCH, "0")
    same = make(4, 6, 7)
    same.load_state_dict(score.state_dict())
    with torch.no_grad():
        fast, plain = scores(score), scores(same)
    assert not torch.equal(fast, plain)  # It is other code,
    assert torch.allclose(fast, plain, atol=1e-5)  # with the same result.


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_contexts_alone_are_those_with_weights(masked: bool, training: bool) -> None:
    attention = MultiHeadAttention(8, 6, 2, dropout=0.5).train(training)
    padding = torch.arange(5) < torch.tensor([[5], [2], [3]])
    memory = attention.remember(random(3, 5, 6), padding if masked else None)
    query = random(3, 4, 8, seed=1)
    mask = torch.ones(3, 1, 4, 5, dtype=torch.bool).tril(1) if masked else None
    torch.manual_seed(2)  # Of dropout: drawn alike.
    wanted = attention(query, memory, mask).context
    torch.manual_seed(2)
    torch.testing.assert_close(attention.context(query, memory, mask), wanted)
    again = attention(query, memory, mask)
    assert torch.allclose(again.context, wanted) is not training  # Dropout in training only,
    assert torch.allclose(again.weights.sum(dim=-1), torch.ones(3, 2, 4))  # behind the weights.


def heads(memory_mask: Tensor | None, mask: Tensor, name: str = "forward") -> None:
    """Multi-head attention of 4 queries to 3 positions of 2 sources."""
    attention = MultiHeadAttention(8, 6, 2)
    memory = attention.remember(torch.zeros(2, 3, 6), memory_mask)
    getattr(attention, name)(torch.zeros(2, 4, 8), memory, mask)


VALUES, ALL = torch.zeros(2, 5, 3), torch.ones(2, 5, dtype=torch.bool)
SECOND_EMPTY = torch.tensor([[True] * 5, [False] * 5])
FIRST = torch.ones(4, 3, dtype=torch.bool).tril()
LATE = torch.tensor([[True] * 3, [False, True, True]])


@pytest.mark.parametrize(
    ("attend", "arguments", "sentence"),
    [
        (Memory, (VALUES, VALUES[:, :4]), "(2, 4, 3)] differ in (B, [N,] L)"),
        (Memory, (VALUES, VALUES, ALL[:1]), "mask (1, 5) is not (B, L) (2, 5)"),
        (Memory, (VALUES, VALUES, ALL.float()), "must be boolean (True = may be attended)"),
        (Memory, (VALUES, VALUES, SECOND_EMPTY), "row [1] has no position that may be"),
        (heads, (LATE, FIRST), "row [1, 0, 0] has no position"),
        (heads, (LATE, FIRST, "context"), "row [1, 0, 0] has no position"),
        (heads, (None, FIRST.float()), "must be boolean"),
    ],
)
def test_a_mistake_about_masks_is_named(attend, arguments, sentence) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        attend(*arguments)
