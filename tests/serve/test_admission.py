from __future__ import annotations

import pytest

from captioner.serve.admission import Admission
from captioner.serve.limits import Limits
from captioner.serve.problems import Problem


def admission(**limits: float) -> Admission:
    return Admission(Limits(**limits))  # type: ignore[arg-type]


def test_a_place_is_given_back() -> None:
    counted = admission(waiting=5)
    with counted.place() as one, counted.place() as other:
        one.take(items=3)
        one.take(items=2)  # Three in all already.
        other.take(size=10)
        assert (counted.waiting, counted.waiting_bytes) == (4, 10)
    assert (counted.waiting, counted.waiting_bytes) == (0, 0)


def test_too_much_is_refused_and_not_counted() -> None:
    counted = admission(waiting=2, waiting_bytes=100)
    with counted.place() as place:
        with pytest.raises(Problem) as refusal:
            place.take(items=3)
        assert refusal.value.status_code == 503
        assert int(refusal.value.headers["Retry-After"]) > 0
        place.take(items=2)
        with pytest.raises(Problem, match="busy"):
            place.take(size=101)
        assert (counted.waiting, counted.waiting_bytes) == (2, 0)
        with pytest.raises(Problem, match="busy"), counted.place():
            pass
        assert counted.waiting == 2
    assert counted.waiting == 0
