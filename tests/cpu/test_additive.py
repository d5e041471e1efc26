"""Blockwise additive scores and their gradient against the plain equation under autograd."""

import pytest
import torch
from torch import Tensor

from captioner.cpu import recurrence
from captioner.cpu.recurrence import additive_scores, exponentials, key_gradient, query_gradient


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain_scores(query: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """Queries (B, Q, A), keys (B, L, A), v (A) -> scores (B, Q, L), as the equation is written."""
    return torch.tanh(query.unsqueeze(2) + keys.unsqueeze(1)) @ v


def plain(query: Tensor, keys: Tensor, v: Tensor, grad_scores: Tensor) -> list[Tensor]:
    """The scores and the gradients of queries, keys and v."""
    leaves = [tensor.detach().requires_grad_() for tensor in (query, keys, v)]
    scores = plain_scores(*leaves)
    return [scores.detach(), *torch.autograd.grad(scores, leaves, grad_scores)]


def blockwise(query: Tensor, keys: Tensor, v: Tensor, grad_scores: Tensor) -> list[Tensor]:
    """The same, by the hand-written functions."""
    key_exponentials = exponentials(keys)
    given = query, keys, key_exponentials, v
    grad_query, grad_v = query_gradient(grad_scores, *given)
    grad_keys = key_gradient(grad_scores, *given)
    return [additive_scores(*given), grad_query, grad_keys, grad_v]


@pytest.mark.parametrize("size", [0.0, 1e-4, 1.0, 10.0, 29.0, 31.0, 42.0, 44.0, 100.0, 1e30])
def test_scores_are_as_exact_as_float32(size: float) -> None:
    query = torch.tensor([-1e30, -100.0, -43.6, -30.0, -9.0, -1.0, 0.0, 1e-6, 5.0, 29.5, 44.0, 1e9])
    query = query.view(1, -1, 1).expand(1, -1, 3)
    keys = torch.tensor([-1.0, 0.5, 1.0]).mul(size).view(1, 3, 1).expand(1, 3, 3)
    v = torch.tensor([0.5, -2.0, 3.0])
    wanted = plain_scores(query.double(), keys.double(), v.double())
    found = additive_scores(query, keys, exponentials(keys), v)
    assert (found - wanted).abs().max() < 3e-6  # of scores between -1.5 and 1.5
    assert found.dtype == torch.float32


@pytest.mark.parametrize("size", [1.0, 29.0, 31.0, 50.0, 130.0])
@pytest.mark.parametrize("keys_size", [1.0, 29.0, 31.0, 50.0, 130.0])
@pytest.mark.parametrize("elements", [1, 50, 100, 1 << 19], ids="blocks-of-{}".format)
def test_scores_and_gradients_are_the_plain_equation_s(
    size: float, keys_size: float, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrence, "_BLOCK_ELEMENTS", elements)  # B Q L A is 2 * 168.
    query = random(2, 4, 6, seed=0).clamp(-1, 1) * size
    # Some sums are small even where both terms are large.
    keys = torch.cat([-query[:, :3], random(2, 4, 6, seed=1).clamp(-1, 1) * keys_size], dim=1)
    keys = keys + 0.3 * random(2, 7, 6, seed=2)
    given = [t.float() for t in (query, keys, random(6, seed=3), random(2, 4, 7, seed=4))]
    exact = plain(*(tensor.double() for tensor in given))
    found = [tensor.double() for tensor in blockwise(*given)]
    torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), float("nan")])
def test_infinite_and_nan_keys_give_what_the_equation_gives(odd: float) -> None:
    query, keys = random(2, 3, 6, seed=0).float(), random(2, 5, 6, seed=1).float()
    v = random(6, seed=2).float()
    keys[1, 2, 3] = odd
    wanted = plain_scores(query, keys, v)
    found = additive_scores(query, keys, exponentials(keys), v)
    torch.testing.assert_close(found, wanted, equal_nan=True)
