"""The options of a search, refused by name where they are out of range."""

from __future__ import annotations

import math
from typing import Any

import pytest

from captioner.decoding import SearchOptions
from captioner.errors import UserError


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"beam": 0}, "beam size 0 is not at least 1"),
        ({"n_best": 0}, "n-best 0 is not at least 1"),
        ({"n_best": 6}, "n-best 6 is more than the beam size, 5"),
        ({"length_normalisation": -1.0}, "length normalisation alpha -1.0 is"),
        ({"length_normalisation": math.nan}, "length normalisation alpha nan is"),
        ({"minimum_length": 41}, "minimum length 41 is not between 0 and the maximum"),
        ({"maximum_length": 0}, "maximum length 0 is not at least 1"),
        ({"block_ngrams": -1}, "-1 of blocked n-grams is"),
        ({"temperature": 0.0}, "temperature 0.0 is not"),
        ({"top_k": -1}, "top-k -1 is"),
        ({"top_p": 0.0}, "top-p 0.0 is not"),
        ({"seed": -1}, "seed -1 is not between 0"),
        ({"seed": 2**70}, "seed .* is not between 0"),
    ],
)
@pytest.mark.parametrize("sample", [False, True])
def test_search_options_out_of_range_are_refused(
    options: dict[str, Any], sentence: str, sample: bool
) -> None:
    if sample and options == {"n_best": 6}:
        assert SearchOptions(sample=True, **options).n_best == 6  # drawn, not searched for
        return
    with pytest.raises(UserError, match=sentence):
        SearchOptions(sample=sample, **options)
