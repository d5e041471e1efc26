"""Options of a search out of range are refused by name, and so is a damaged model."""

import math
from typing import Any

import pytest
import torch
from table_decoder import END, START, TableDecoder, memory_of, random_table

from captioner.decoding.loop import BeamSearch, Sampling, decode
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beam": 0}, "beam 0 is not at least 1"),
        ({"beam": 2**63}, "beam 9223372036854775808 is not at most 1,000"),
        ({"beam": True}, "beam should be a whole number, found True"),
        ({"n_best": 0}, "n_best 0 is not at least 1"),
        ({"n_best": 6}, "n_best 6 is more than the beam size, 5"),
        ({"length_normalisation": -1.0}, "length_normalisation -1.0 is not at least 0"),
        ({"length_normalisation": math.nan}, "length_normalisation should be a finite number"),
        ({"minimum_length": 41}, "minimum_length 41 is more than maximum_length, 40"),
        ({"maximum_length": 0}, "maximum_length 0 is not at least 1"),
        ({"block_ngrams": -1}, "block_ngrams -1 is not at least 0"),
        ({"repeat_distance": -1}, "repeat_distance -1 is not at least 0"),
        ({"temperature": 0.0}, "temperature 0.0 is not above 0"),
        ({"top_k": -1}, "top_k -1 is not at least 0"),
        ({"top_p": 0.0}, "top_p 0.0 is not above 0"),
        ({"top_p": 1.5}, "top_p 1.5 is not at most 1"),
        ({"seed": -1}, "seed -1 is not at least 0"),
        ({"seed": 2**70}, "seed .* is not at most 9,223,372,036,854,775,807"),
        ({"beem": 3}, "unknown field 'beem'; did you mean 'beam'"),
    ],
)
@pytest.mark.parametrize("sample", [False, True])
def test_search_options_out_of_range_are_refused(
    options: dict[str, Any], sentence: str, sample: bool
) -> None:
    if sample and options == {"n_best": 6}:
        assert SearchOptions(sample=True, **options).n_best == 6  # drawn, not searched for
        return
    with pytest.raises(UserError, match=f"^{sentence}"):
        SearchOptions(sample=sample, **options)


@pytest.mark.parametrize("draws", [False, True])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_model_that_gives_no_numbers_is_refused(draws: bool, value: float) -> None:
    table = random_table(1, 6)
    table[:, 3] = value
    strategy = Sampling(torch.Generator(), width=4) if draws else BeamSearch(4)
    with pytest.raises(UserError, match="the model's output is not a number"):
        decode(TableDecoder(table), memory_of(1), start=START, end=END, strategy=strategy)
