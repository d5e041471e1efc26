import math
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from samples import table_of
from table_decoder import END, START, TableDecoder, memory_of, random_table, search
from torch import Tensor

from captioner.decoding.constraints import block, to_device
from captioner.decoding.options import AnySearch, SearchOptions
from captioner.decoding.rules import IMPOSSIBLE, Constraints
from captioner.errors import UserError

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


def test_only_ngrams_that_people_wrote_by_hand() -> None:
    # With 0 for the start: 2 3 <end>, and 3 4 2 <end>.
    known = [(0, 0, 0, 2), (0, 0, 2, 3), (0, 2, 3, END)]
    known += [(0, 0, 0, 3), (0, 0, 3, 4), (0, 3, 4, 2), (3, 4, 2, END)]
    for tokens, expected in {
        (): [2, 3],
        (2,): [3],
        (2, 3): [END],
        (3, 4): [2],
        (3, 4, 2): [END],
        (4,): [END],  # Nobody began so: nothing is left but to end.
    }.items():
        assert left(of_ngrams(known), list(tokens)) == expected


def test_words_that_people_keep_apart_by_hand() -> None:
    # With 0 for the start: every 4-gram of 2, 3 and 4 is known, and 4 does not come after 2.
    words = (2, 3, 4)
    known = [(0,) * (3 - n) + gram for n in range(4) for gram in product(words, repeat=n + 1)]
    known.append((2, 0, 0, 4))
    for tokens, expected in {(): [2, 3, 4], (2, 3, 3): [2, 3], (4, 3): [2, 3, 4]}.items():
        assert left(of_ngrams(known), list(tokens)) == expected


@given(
    known=st.sets(st.tuples(*[st.sampled_from([0, 2, 3, 4])] * 3, st.integers(1, 4)), min_size=1),
    tokens=st.lists(st.integers(2, 4), max_size=5),
)
def test_known_ngrams_and_clashes_by_brute_force(known, tokens) -> None:
    written = (0, 0, 0, *tokens)
    is_left = [
        (*written[-3:], last) in known and not any((word, 0, 0, last) in known for word in tokens)
        for last in range(5)
    ]
    expected = [last for last in range(5) if is_left[last]] or [END]
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
    with pytest.raises(UserError, match=f"^{sentence}"):
        SearchOptions().override(**options)


@pytest.mark.parametrize("sample", [False, True])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_model_that_gives_no_numbers_is_refused(sample: bool, value: float) -> None:
    table = random_table(1, 6)
    table[:, 3] = value
    with pytest.raises(UserError, match="the model's output is not a number"):
        search(TableDecoder(table), memory_of(1), sample=sample)
