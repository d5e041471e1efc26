import math
from typing import Any

import pytest
import torch
from refusals import refuses
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


def test_a_word_blocks_its_class_and_a_phrase_its_last_word() -> None:
    search = AnySearch(minimum_length=0, repeat_distance=2)
    constraints = Constraints(search, repeatable=(4,), classes=(0, 1, 2, 2, 4))
    assert left(constraints, [3]) == [0, 1, 4]
    assert left(constraints, [3, 4, 4]) == [0, 1, 2, 3, 4]
    phrases = Constraints(AnySearch(), phrases=((2, 3), (4,), (2, 2, 0)))
    assert left(phrases, []) == [0, 2, 3]
    assert left(phrases, [2]) == [0, 1, 2]
    assert left(phrases, [2, 2]) == [1, 2]
    assert left(phrases, [2, 1]) == [0, 1, 2, 3]


@pytest.mark.parametrize("phrases", [(), ((2, 3),)])
def test_no_input_of_a_graph_is_empty(phrases: tuple[tuple[int, ...], ...]) -> None:
    rules = Constraints(AnySearch(), phrases=phrases).rules(5)
    assert all(array.size for array in rules.inputs().values())  # Else onnxruntime 1.30 fails.
    history = torch.tensor([[[START, 0, 0]]])  # Nor does the neutral phrase block a token.
    values = torch.zeros(1, 1, 5)
    tensors = {name: torch.as_tensor(array) for name, array in rules.inputs().items()}
    block(rules._replace(**tensors), values, history, END)
    assert values.max() == values.min() == 0


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
