import math

import pytest
import torch
from table_decoder import END, ROWS, START, TableDecoder, memory_of, random_table

from captioner.decoding.constraints import Constraints
from captioner.decoding.loop import Sampling, decode


def seeded(seed: int = 0, **fields) -> Sampling:
    return Sampling(torch.Generator().manual_seed(seed), **fields)


def constant_table(probabilities: list[float]) -> torch.Tensor:
    """The same distribution whatever came before."""
    return torch.tensor(probabilities).log().expand(ROWS, -1).clone()


def sample(decoder, memory, strategy, constraints=None):
    return decode(decoder, memory, start=START, end=END, strategy=strategy, constraints=constraints)


PROBABILITIES = torch.tensor([0.1, 0.4, 0.2, 0.3])


def near(expected: list[float]):
    return pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (5e-324, [0.0, 1.0, 0.0, 0.0]),  # 0 in float32
        (1e-9, [0.0, 1.0, 0.0, 0.0]),  # the most probable is always left
        (0.39, [0.0, 1.0, 0.0, 0.0]),
        (0.41, [0.0, 4 / 7, 0.0, 3 / 7]),
        (0.69, [0.0, 4 / 7, 0.0, 3 / 7]),
        (0.71, [0.0, 4 / 9, 2 / 9, 3 / 9]),
        (0.91, [0.1, 0.4, 0.2, 0.3]),
        (1.0, [0.1, 0.4, 0.2, 0.3]),
    ],
)
def test_top_p_by_hand(p, expected) -> None:
    assert seeded(top_p=p).distribution(PROBABILITIES.log()).tolist() == near(expected)


def test_sequences_come_as_often_as_they_are_probable() -> None:
    draws = 4000
    decoder = TableDecoder(random_table(1, 3, scale=1.0))
    (hypotheses,) = sample(
        decoder, memory_of(2), seeded(width=draws), Constraints(maximum_length=2)
    )
    assert len(hypotheses) == draws
    counts: dict[tuple[int, ...], int] = {}
    for hypothesis in hypotheses:
        key = tuple(hypothesis.tokens)
        counts[key] = counts.get(key, 0) + 1
    chi_square, total = 0.0, 0.0
    for tokens in ([], [0], [2], [0, 0], [0, 2], [2, 0], [2, 2]):
        terms = decoder.replay(2, tokens)
        # After two tokens the end is all that is left.
        probability = math.exp(sum(terms[:-1] if len(tokens) == 2 else terms))
        total += probability
        expected = draws * probability
        chi_square += (counts.pop(tuple(tokens), 0) - expected) ** 2 / expected
    assert counts == {}
    assert total == pytest.approx(1.0, abs=1e-5)
    assert chi_square < 22.5  # six degrees of freedom, p = 0.001


def test_top_k_and_top_p_hold_for_whole_sequences() -> None:
    decoder = TableDecoder(constant_table([0.1, 0.3, 0.4, 0.2]))
    for fields in ({"top_k": 2}, {"top_p": 0.65}):
        (hypotheses,) = sample(decoder, memory_of(1), seeded(width=200, **fields))
        assert {token for h in hypotheses for token in h.tokens} == {2}
        # Under the model itself, not under the narrowed distribution.
        for hypothesis in hypotheses:
            expected = len(hypothesis.tokens) * math.log(0.4) + math.log(0.3)
            assert hypothesis.log_probability == pytest.approx(expected, abs=1e-3)


def test_the_seed_decides_the_samples() -> None:
    decoder = TableDecoder(random_table(9, 6, scale=0.5))

    def draw(seed):
        found = sample(decoder, memory_of(1, 2), seeded(seed, width=6), Constraints(0, 12))
        return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]

    first = draw(3)
    torch.manual_seed(99)  # the global generator plays no part
    assert draw(3) == first
    assert draw(4) != first


@pytest.mark.parametrize("width", [1, 8])
def test_samples_that_end_early_keep_their_own_words(width) -> None:
    decoder = TableDecoder(random_table(12, 5, scale=0.7))
    sources = (3, 5, 7)
    found = sample(decoder, memory_of(*sources), seeded(1, width=width), Constraints(0, 15))
    lengths = set()
    for source, hypotheses in zip(sources, found, strict=True):
        assert len(hypotheses) == width
        for hypothesis in hypotheses:
            lengths.add(len(hypothesis.tokens))
            terms = decoder.replay(source, hypothesis.tokens)
            assert hypothesis.token_log_probabilities == pytest.approx(terms, abs=1e-4)
            assert hypothesis.attention.tolist() == decoder.attention(source, hypothesis.tokens)
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
    assert len(lengths) > 1  # some ended early, others went on


def by_sorting(steps: torch.Tensor, temperature: float, top_k: int, top_p: float) -> torch.Tensor:
    """The distribution by its definition: the whole vocabulary is sorted and its tail cut off."""
    ordered, order = torch.softmax(steps.double() / temperature, dim=-1).sort(descending=True)
    if top_k:
        ordered[..., top_k:] = 0
        ordered = ordered / ordered.sum(dim=-1, keepdim=True)
    before = ordered.cumsum(dim=-1) - ordered
    ordered = ordered.masked_fill(before >= top_p, 0.0) if top_p < 1 else ordered
    kept = torch.zeros_like(ordered).scatter_(-1, order, ordered)
    return kept / kept.sum(dim=-1, keepdim=True)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("p", [1.0, 0.8])
@pytest.mark.parametrize("k", [0, 1, 7, 9000, 10_000, 20_000])
def test_a_large_vocabulary_has_the_same_distribution_however_it_is_found(
    k, p, temperature
) -> None:
    logits = 3 * torch.randn(3, 5, 9000, generator=torch.Generator().manual_seed(0))
    logits[..., 17] = float("-inf")
    steps = torch.log_softmax(logits, dim=-1)
    found = seeded(top_k=k, top_p=p, temperature=temperature).distribution(steps)
    expected = by_sorting(steps, temperature, k, p)
    assert found.dtype == torch.float32
    # At the edge of top-p rounding decides on one token.
    differs = (found > 0) != (expected > 0)
    assert bool((differs.sum(dim=-1) <= (p < 1)).all())
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-6)
    assert bool((found[..., 17] == 0).all())
