import math
import random
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from samples import table_of
from table_decoder import END, START, TableDecoder, memory_of, random_table, search
from torch import Tensor

from captioner.decoding.constraints import block, to_device
from captioner.decoding.options import AnySearch, SearchOptions
from captioner.decoding.rules import IMPOSSIBLE, Constraints

BLOCKED = float("-inf")


def block_tokens(constraints: Constraints, values: Tensor, history: Tensor) -> None:
    rules = to_device(constraints.rules(values.shape[-1]), values.device)
    block(rules, values, history, END)


def with_lengths(minimum: int, maximum: int, forbidden: tuple[int, ...] = ()) -> Constraints:
    return Constraints(AnySearch(minimum_length=minimum, maximum_length=maximum), forbidden)


def left(constraints: Constraints, tokens: list[int], vocabulary_size: int = 5) -> list[int]:
    """Which tokens are left after these."""
    history = torch.tensor([[[START, *tokens]]])
    values = torch.full((1, 1, vocabulary_size), -2.0)
    block_tokens(constraints, values, history)
    # What is left keeps its value, but for an end that comes too early.
    assert set(values.flatten().tolist()) <= {-2.0, BLOCKED, IMPOSSIBLE}
    return [token for token in range(vocabulary_size) if values[0, 0, token] > BLOCKED]


def of_ngrams(known: Iterable[tuple[int, ...]]) -> Constraints:
    table = table_of(torch.tensor(sorted(known)), 5)
    return Constraints(AnySearch(minimum_length=0), ngram_table=table)


@given(
    shares=st.sampled_from([(0.3, 0.01), (0.8, 0.1), (1.0, 0.3)]),
    seed=st.integers(0, 99),
    tokens=st.lists(st.integers(2, 4), max_size=5),
)
def test_known_ngrams_and_clashes_by_brute_force(shares, seed, tokens) -> None:
    """With 0 for the start: after (a, 0, 0, b) in the table, b does not follow a."""
    drawn, words = random.Random(seed), (0, 2, 3, 4)
    known = {
        gram
        for gram in product(words, words, words, range(1, 5))
        if drawn.random() < shares[gram[0] > 0 and gram[1:3] == (0, 0)]
    }
    written = (0, 0, 0, *tokens)
    begun = [last for last in range(5) if (*written[-3:], last) in known]
    apart = {gram[3] for gram in known if gram[0] in tokens and gram[1:3] == (0, 0)}
    expected = [last for last in begun if last not in apart] or [END]
    assert left(of_ngrams(known), tokens) == expected


def test_an_ending_the_model_rules_out_counts_as_impossible() -> None:
    def blocked(constraints: Constraints, tokens: list[int]) -> list[float]:
        values = torch.tensor([[[-1.0, BLOCKED, -0.5]]])
        block_tokens(constraints, values, torch.tensor([[[START, *tokens]]]))
        return values.flatten().tolist()

    assert blocked(with_lengths(0, 1), [2]) == [BLOCKED, IMPOSSIBLE, BLOCKED]
    assert blocked(with_lengths(0, 9, (0, 2)), []) == [BLOCKED, IMPOSSIBLE, BLOCKED]
    short = with_lengths(2, 9, (0, 2))  # Too short, but nothing else is left.
    assert blocked(short, []) == [BLOCKED, IMPOSSIBLE, BLOCKED]
    assert blocked(with_lengths(0, 9), []) == [-1.0, BLOCKED, -0.5]  # where something else is left


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beam": 0}, "beam should be greater than or equal to 1, found 0"),
        ({"n_best": 6, "beam": 5}, "n_best 6 is more than the beam size, 5"),
        ({"top_k": 3}, "'top_k' has no meaning without 'sample'"),
        ({"minimum_length": 41}, "minimum_length 41 is more than maximum_length, 40"),
        ({"beem": 3}, "unknown field 'beem'; did you mean 'beam'"),
    ],
)
def test_search_options_out_of_range_are_refused(options: dict[str, Any], sentence: str) -> None:
    refuses(f"^{sentence}", SearchOptions().override, **options)


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_model_that_gives_no_numbers_is_refused(sample: bool, value: float) -> None:
    table = random_table(1, 6)
    table[:, 3] = value
    refuses("output is not a number", search, TableDecoder(table), memory_of(1), sample=sample)
