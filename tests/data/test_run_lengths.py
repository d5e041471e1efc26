from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pycocotools import mask as reference

from captioner.data.run_lengths import decode_run_lengths
from captioner.errors import UserError


def test_runs_go_down_the_columns_and_begin_outside() -> None:
    mask = decode_run_lengths([1, 2, 3], 2, 3, "it")
    assert mask.tolist() == [[False, True, False], [True, False, False]]
    assert decode_run_lengths([0, 6], 2, 3, "it").all()


@given(
    arrays.arrays(
        np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40)), elements={"max_value": 1}
    )
)
def test_strings_are_unpacked_as_coco_packs_them(mask: np.ndarray) -> None:
    packed = reference.encode(np.asfortranarray(mask))
    found = decode_run_lengths(packed["counts"].decode("ascii"), *packed["size"], "it")
    assert found.dtype == np.bool_
    assert np.array_equal(found, mask == 1)


def test_long_runs_are_unpacked() -> None:
    mask = np.zeros((1500, 1100), np.uint8)
    mask[700:, 3:900] = 1
    packed = reference.encode(np.asfortranarray(mask))
    found = decode_run_lengths(packed["counts"].decode("ascii"), *packed["size"], "it")
    assert np.array_equal(found, mask == 1)


@pytest.mark.parametrize(
    "counts",
    [None, [1, None], [3, -1, 4], [2.5, 3.5], [2, 3], [2**40], "", "5 5", "ooooo", "23"],
)
def test_damaged_counts_are_refused(counts: object) -> None:
    with pytest.raises(UserError, match="it has no runs that add up to the 6 pixels of its image"):
        decode_run_lengths(counts, 2, 3, "it")


@given(
    st.text(max_size=12)
    | st.text(st.characters(min_codepoint=46, max_codepoint=113), max_size=12)
    | st.lists(st.integers() | st.floats() | st.none(), max_size=4),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_any_counts_are_decoded_or_refused(counts: object, height: int, width: int) -> None:
    try:
        mask = decode_run_lengths(counts, height, width, "it")
    except UserError:
        return
    assert mask.shape == (height, width)
