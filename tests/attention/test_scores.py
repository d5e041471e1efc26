import math

import pytest
import torch

from captioner import cpu
from captioner.attention.memory import Memory
from captioner.attention.scores import AdditiveScore, ConcatScore, GeneralScore, Score

B, Q, L, H, D, A = 2, 3, 5, 4, 6, 7


@pytest.fixture
def query() -> torch.Tensor:
    return torch.randn(B, Q, H, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def values() -> torch.Tensor:
    return torch.randn(B, L, D, generator=torch.Generator().manual_seed(2))


def literal(formula, query, values) -> torch.Tensor:
    """One call of the formula for each pair of a query vector and a value vector."""
    return torch.stack(
        [
            torch.stack([torch.stack([formula(q, k) for k in rows]) for q in queries])
            for queries, rows in zip(query, values, strict=True)
        ]
    )


def scores(score: Score, query: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    return score(query, Memory(values, score.project_keys(values)))


def test_general_is_q_w_k(query, values) -> None:
    score = GeneralScore(H, D)
    weight = score.key_projection.weight  # (H, D)
    expected = literal(lambda q, k: q @ weight @ k, query, values)
    torch.testing.assert_close(scores(score, query, values), expected)


def test_temperature_divides_the_scores(query, values) -> None:
    plain, warm = AdditiveScore(H, D, A), AdditiveScore(H, D, A, temperature=0.25)
    warm.load_state_dict(plain.state_dict())
    torch.testing.assert_close(scores(warm, query, values), scores(plain, query, values) / 0.25)


@pytest.mark.parametrize("bias", [True, False])
def test_additive_is_the_papers_formula(query, values, bias) -> None:
    score = AdditiveScore(H, D, A, bias=bias)
    w, u, v = score.query_projection.weight, score.key_projection.weight, score.energy.weight[0]
    b = score.key_projection.bias if bias else torch.zeros(A)
    expected = literal(
        lambda q, k: sum(
            v[a]
            * torch.tanh(
                sum(w[a, h] * q[h] for h in range(H)) + sum(u[a, d] * k[d] for d in range(D)) + b[a]
            )
            for a in range(A)
        ),
        query,
        values,
    )
    torch.testing.assert_close(scores(score, query, values), expected)
    assert len(list(score.parameters())) == 3 + bias  # one bias, not two


def test_concat_is_one_matrix_on_the_joined_vectors(query, values) -> None:
    score = ConcatScore(H, D, A)
    whole = torch.cat([score.query_projection.weight, score.key_projection.weight], dim=1)
    v = score.energy.weight[0]
    expected = literal(lambda q, k: v @ torch.tanh(whole @ torch.cat([q, k])), query, values)
    torch.testing.assert_close(scores(score, query, values), expected)
    assert sum(p.numel() for p in score.parameters()) == A * (H + D) + A


def test_concat_halves_start_on_one_scale() -> None:
    torch.manual_seed(0)
    score = ConcatScore(1, 399, 500)  # separate halves would start within 1 and within 0.05
    bound = 1 / math.sqrt(400)
    for half in (score.query_projection.weight, score.key_projection.weight):
        assert half.abs().max() <= bound
        assert half.abs().max() > 0.95 * bound


@pytest.mark.parametrize("make", [AdditiveScore, ConcatScore])
def test_decoding_by_the_code_for_cpus_gives_the_same_scores(
    make: type[AdditiveScore], query, values, monkeypatch: pytest.MonkeyPatch
) -> None:
    score = make(H, D, A)
    with torch.no_grad():
        fast = scores(score, query, values)
        monkeypatch.setenv(cpu.SWITCH, "0")
        plain = scores(score, query, values)
    assert not torch.equal(fast, plain)  # It is other code,
    assert torch.allclose(fast, plain, atol=1e-5)  # with the same result.
