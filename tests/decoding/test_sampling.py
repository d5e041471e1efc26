import math
from collections import Counter
from typing import Any

import pytest
import torch
from table_decoder import TableDecoder, assert_replayed, memory_of, random_table, search

from captioner.decoding.loop import Sampling
from captioner.decoding.options import AnySearch
from captioner.decoding.search import Hypothesis


def sample(decoder: TableDecoder, *sources: int, **options: Any) -> list[list[Hypothesis]]:
    return search(decoder, memory_of(*sources), sample=True, **options)


def test_sequences_come_as_often_as_they_are_probable() -> None:
    draws = 4000
    decoder = TableDecoder(random_table(1, 3, scale=1.0))
    found = sample(decoder, 2, 2, 2, 2, n_best=1000, maximum_length=2)
    counts = Counter(tuple(each.tokens) for hypotheses in found for each in hypotheses)
    assert counts.total() == draws
    chi_square = 0.0
    for tokens in ([], [0], [2], [0, 0], [0, 2], [2, 0], [2, 2]):
        terms = decoder.replay(2, tokens)
        # After two tokens the end is all that is left.
        expected = draws * math.exp(sum(terms[:-1] if len(tokens) == 2 else terms))
        chi_square += (counts.pop(tuple(tokens), 0) - expected) ** 2 / expected
    assert not counts
    assert chi_square < 22.5  # six degrees of freedom, p = 0.001


@pytest.mark.parametrize("width", [1, 8])
def test_samples_that_end_early_keep_their_own_words(width) -> None:
    decoder = TableDecoder(random_table(12, 5, scale=0.7))
    sources = (3, 5, 7)
    # Log-probabilities are those of the model, not of the flattened distribution.
    options = {"seed": 1, "temperature": 1.2, "maximum_length": 15}
    found = sample(decoder, *sources, n_best=width, **options)
    lengths = set()
    for source, hypotheses in zip(sources, found, strict=True):
        assert len(hypotheses) == width
        for hypothesis in hypotheses:
            lengths.add(len(hypothesis.tokens))
            assert_replayed(decoder, source, hypothesis)
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
@pytest.mark.parametrize("p", [1.0, 0.8, 1e-9, 5e-324])  # The most probable is always left.
@pytest.mark.parametrize("k", [0, 1, 7, 9000, 10_000, 20_000])
def test_a_large_vocabulary_has_the_same_distribution(k, p, temperature) -> None:
    logits = 3 * torch.randn(3, 5, 9000, generator=torch.Generator().manual_seed(0))
    logits[..., 17] = float("-inf")
    steps = torch.log_softmax(logits, dim=-1)
    options = AnySearch(sample=True, temperature=temperature, top_k=k, top_p=p)
    found = Sampling(options, torch.Generator()).distribution(steps)
    expected = by_sorting(steps, temperature, k, p)
    assert found.dtype == torch.float32
    # At the edge of top-p rounding decides on one token.
    differs = (found > 0) != (expected > 0)
    assert (differs.sum(dim=-1) <= (p < 1)).all()
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-6)
    assert bool((found[..., 17] == 0).all())
