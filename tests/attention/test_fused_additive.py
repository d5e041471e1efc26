"""Additive scores in pieces against the plain equation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from captioner.attention import AdditiveScore, Attention, ConcatScore, fused_additive
from captioner.attention.fused_additive import (
    FusedAdditiveScores,
    additive_scores,
    exponentials,
    key_gradient,
    plain_additive_scores,
    query_gradient,
)


def random(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def fused(query: Tensor, keys: Tensor, energy: Tensor) -> Tensor:
    found: Tensor = FusedAdditiveScores.apply(query, keys, exponentials(keys), energy)
    return found


@pytest.mark.parametrize("elements", [1, 40, 100, 1 << 19], ids="{}-at-once".format)
def test_scores_and_gradients_are_the_plain_equation_s(
    elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_additive, "_ELEMENTS", elements)  # B Q L A is 5 * 120
    given = [random(5, 4, 6, seed=0), random(5, 5, 6, seed=1), random(6, seed=2)]
    weight = random(5, 4, 5, seed=3)
    results = []
    for function in (fused, plain_additive_scores):
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        scores = function(*leaves)
        (scores * weight).sum().backward()
        results.append([scores, *(leaf.grad for leaf in leaves)])
    for own, wanted in zip(*results, strict=True):
        assert wanted is not None
        assert wanted.abs().sum() > 0
        torch.testing.assert_close(own, wanted)


def test_the_gradient_is_that_of_finite_differences() -> None:
    given = [random(2, 3, 4, seed=0), random(2, 5, 4, seed=1), random(4, seed=2)]
    for tensor in given:
        tensor.requires_grad_()
    assert torch.autograd.gradcheck(fused, given)


@pytest.mark.parametrize("size", [0.0, 1e-4, 1.0, 10.0, 29.0, 31.0, 42.0, 44.0, 100.0, 1e30])
def test_scores_are_as_exact_as_float32(size: float) -> None:
    query = torch.tensor([-1e30, -100.0, -43.6, -30.0, -9.0, -1.0, 0.0, 1e-6, 5.0, 29.5, 44.0, 1e9])
    query = query.view(1, -1, 1).expand(1, -1, 3)
    keys = torch.tensor([-1.0, 0.5, 1.0]).mul(size).view(1, 3, 1).expand(1, 3, 3)
    energy = torch.tensor([0.5, -2.0, 3.0])
    wanted = plain_additive_scores(query.double(), keys.double(), energy.double())
    found = additive_scores(query, keys, exponentials(keys), energy)
    assert (found - wanted).abs().max() < 3e-6  # of scores between -1.5 and 1.5
    assert found.dtype == torch.float32


@pytest.mark.parametrize("size", [1.0, 29.0, 31.0, 50.0, 130.0])
@pytest.mark.parametrize("keys_size", [1.0, 29.0, 31.0, 50.0, 130.0])
def test_gradients_of_large_queries_and_keys_are_those_of_the_equation(
    size: float, keys_size: float
) -> None:
    query = random(2, 4, 6, seed=0).clamp(-1, 1) * size
    # So that sums are small even where both are large, in some places.
    keys = torch.cat([-query[:, :3], random(2, 4, 6, seed=1).clamp(-1, 1) * keys_size], dim=1)
    keys = keys + 0.3 * random(2, 7, 6, seed=2)
    given = [query.float(), keys.float(), random(6, seed=3).float()]
    gradient = random(2, 4, 7, seed=4)
    results = []
    for function, kind in ((fused, torch.float32), (plain_additive_scores, torch.float64)):
        leaves = [tensor.to(kind).requires_grad_() for tensor in given]
        scores = function(*leaves)
        found = [scores.detach(), *torch.autograd.grad(scores, leaves, gradient.to(kind))]
        results.append([each.double() for each in found])
    for own, wanted in zip(*results, strict=True):
        torch.testing.assert_close(own, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), float("nan")])
def test_keys_that_are_no_numbers_give_what_the_equation_gives(odd: float) -> None:
    query, keys = random(2, 3, 6, seed=0).float(), random(2, 5, 6, seed=1).float()
    energy = random(6, seed=2).float()
    keys[1, 2, 3] = odd
    wanted = plain_additive_scores(query, keys, energy)
    found = additive_scores(query, keys, exponentials(keys), energy)
    torch.testing.assert_close(found, wanted, equal_nan=True)


def test_an_attention_prepares_its_memory_once_and_looks_the_same() -> None:
    for make in (AdditiveScore, ConcatScore):
        torch.manual_seed(0)
        attention = Attention(make(4, 4, 6)).double()
        values, query = random(2, 5, 4, seed=0), random(2, 3, 4, seed=1)
        fast = attention.remember(values)
        assert fast.prepared is not None
        torch.testing.assert_close(fast.prepared, (2 * fast.keys).exp())
        attention.score.fused = False
        slow = attention.remember(values)
        assert slow.prepared is None
        with torch.no_grad():
            torch.testing.assert_close(attention(query, fast), attention(query, slow))
        results = []
        for memory in (fast, slow):
            attention.zero_grad()
            attention(query, memory).context.square().sum().backward()
            results.append([parameter.grad.clone() for parameter in attention.parameters()])
        torch.testing.assert_close(*results)


def test_half_precision_scores_are_rounded_once() -> None:
    query, keys = random(2, 3, 6, seed=0).bfloat16(), random(2, 5, 6, seed=1).bfloat16()
    energy = random(6, seed=2).bfloat16()
    wanted = plain_additive_scores(query.double(), keys.double(), energy.double())
    found = additive_scores(query, keys, exponentials(keys), energy)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_an_autocast_region_rounds_nothing() -> None:
    kind = torch.float32
    query, keys = random(2, 3, 6, seed=0, dtype=kind), random(2, 5, 6, seed=1, dtype=kind)
    energy, gradient = random(6, seed=2, dtype=kind), random(2, 3, 5, seed=3, dtype=kind)

    def computed() -> list[Tensor]:
        prepared = exponentials(keys)
        leaves = [tensor.clone().requires_grad_() for tensor in (query, keys, energy)]
        scores = fused(*leaves)
        return [
            prepared,
            additive_scores(query, keys, prepared, energy),
            *query_gradient(gradient, query, keys, prepared, energy),
            key_gradient(gradient, query, keys, prepared, energy),
            scores,
            *torch.autograd.grad(scores, leaves, gradient),
        ]

    wanted = computed()
    with torch.autocast("cpu", torch.bfloat16):
        found = computed()
    for own, other in zip(found, wanted, strict=True):
        assert own.dtype == torch.float32
        assert torch.equal(own, other)


@pytest.mark.parametrize(("batch", "queries"), [(0, 3), (2, 0), (0, 0)])
def test_nothing_to_score_gives_nothing(batch: int, queries: int) -> None:
    given = [random(batch, queries, 6, seed=0), random(batch, 5, 6, seed=1), random(6, seed=2)]
    results = []
    for function in (fused, plain_additive_scores):
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        scores = function(*leaves)
        assert scores.shape == (batch, queries, 5)
        results.append([scores, *torch.autograd.grad(scores.sum(), leaves)])
    for own, wanted in zip(*results, strict=True):
        torch.testing.assert_close(own, wanted)


def test_an_attention_looks_at_no_source_alike_in_both_ways() -> None:
    attention = Attention(AdditiveScore(4, 4, 6)).double()
    memory = attention.remember(random(0, 5, 4, seed=0))
    assert memory.prepared is not None
    found = attention(random(0, 3, 4, seed=1), memory)
    assert found.context.shape == (0, 3, 4)
    assert found.weights.shape == (0, 3, 5)
