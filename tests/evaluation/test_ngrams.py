from __future__ import annotations

import numpy as np

from captioner.evaluation.ngrams import sorting


def test_numbers_too_large_to_carry_their_place_are_sorted_all_the_same() -> None:
    codes = np.array([2**62, 5, 2**62, 0, 5], dtype=np.int64)
    assert sorting(codes).tolist() == [3, 1, 4, 0, 2]
    assert sorting(codes % 7).tolist() == np.argsort(codes % 7, kind="stable").tolist()
