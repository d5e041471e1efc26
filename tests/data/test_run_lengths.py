from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pycocotools import mask as reference

from captioner.data.run_lengths import decode_mask, run_lengths
from captioner.errors import UserError


def test_runs_go_down_the_columns_and_begin_outside() -> None:
    mask = decode_mask([1, 2, 3], (2, 3), "it")
    assert mask.tolist() == [[False, True, False], [True, False, False]]
    assert decode_mask([0, 6], (2, 3), "it").all()


@given(
    arrays.arrays(
        np.uint8, st.tuples(st.integers(1, 40), st.integers(1, 40)), elements={"max_value": 1}
    )
)
def test_strings_are_unpacked_as_coco_packs_them(mask: np.ndarray) -> None:
    packed = reference.encode(np.asfortranarray(mask))
    lengths = run_lengths(packed["counts"].decode("ascii"), "it")
    assert np.array_equal(decode_mask(lengths, packed["size"], "it"), mask == 1)
    assert run_lengths(lengths, "it") == lengths


def test_long_runs_are_unpacked() -> None:
    mask = np.zeros((1500, 1100), np.uint8)
    mask[700:, 3:900] = 1
    packed = reference.encode(np.asfortranarray(mask))
    lengths = run_lengths(packed["counts"].decode("ascii"), "it")
    assert np.array_equal(decode_mask(lengths, packed["size"], "it"), mask == 1)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        (None, "it has neither a list of whole numbers nor a string as counts"),
        ([1, 2.5], "it has neither a list of whole numbers nor a string as counts"),
        ([1, True], "it has neither a list of whole numbers nor a string as counts"),
        ([3, -1, 4], "it has a run length that is negative or too large"),
        ([2**40], "it has a run length that is negative or too large"),
        ("5 5", "it has counts that are not COCO's run lengths"),
        ("oooooooooo", "it has counts that are not COCO's run lengths"),
        ("é", "it has counts that are not COCO's run lengths"),
        ("5o", "it has counts that end in the middle of a number"),
        ("O", "it has a run length that is negative or too large"),
    ],
)
def test_other_counts_are_refused(counts: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_lengths(counts, "it")


def test_runs_that_do_not_fill_the_picture_are_refused() -> None:
    with pytest.raises(UserError, match="it has runs of 5 pixels, but its image has 6"):
        decode_mask([2, 3], (2, 3), "it")


@given(st.text(max_size=12) | st.lists(st.integers() | st.floats() | st.none(), max_size=4))
def test_any_counts_are_read_or_refused(counts: object) -> None:
    try:
        lengths = run_lengths(counts, "it")
    except UserError:
        return
    assert all(length >= 0 for length in lengths)
    assert json.loads(json.dumps(lengths)) == lengths
