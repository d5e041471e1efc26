from __future__ import annotations

import pytest

from captioner.errors import UserError
from captioner.serve.admission import Admission
from captioner.serve.limits import Limits
from captioner.serve.problems import Problem


def admission(**limits: float) -> Admission:
    return Admission(Limits(**limits))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["upload_bytes", "seconds", "waiting"])
def test_a_limit_not_above_0_is_refused(name: str, value: float) -> None:
    with pytest.raises(UserError, match=name):
        Limits(**{name: value})  # type: ignore[arg-type]


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
        place.take(seconds=2.5)
        with pytest.raises(Problem) as refusal:
            place.take(items=3)
        assert refusal.value.status_code == 503
        assert refusal.value.headers == {"Retry-After": "3"}
        place.take(items=2)
        with pytest.raises(Problem, match="busy"):
            place.take(size=101)
        assert (counted.waiting, counted.waiting_bytes) == (2, 0)
        with pytest.raises(Problem, match="busy"), counted.place():
            pass
        assert counted.waiting == 2
    assert counted.waiting == 0


@pytest.mark.parametrize(("expected", "said"), [(0.0, "1"), (0.2, "1"), (59.5, "60"), (1e9, "60")])
def test_retry_after_is_in_whole_seconds(expected: float, said: str) -> None:
    counted = admission(waiting=1)
    with counted.place() as place:
        place.take(seconds=expected)
        with pytest.raises(Problem) as refusal:
            place.take(items=2)
    assert refusal.value.headers == {"Retry-After": said}


def test_only_what_can_be_done_in_time_is_admitted() -> None:
    counted = admission(seconds=60.0)
    with counted.place() as one, counted.place() as other:
        one.take(seconds=100.0)  # Nobody is before it.
        with pytest.raises(Problem) as refusal:
            other.take(seconds=0.1)
        assert refusal.value.headers == {"Retry-After": "60"}
    with counted.place() as one, counted.place() as other:
        one.take(seconds=40.0)
        other.take(items=3, seconds=20.0)
        with pytest.raises(Problem, match="busy"), counted.place() as third:
            third.take(seconds=0.1)
        assert (counted.waiting, counted.seconds) == (4, 60.0)
    assert (counted.waiting, counted.seconds) == (0, 0.0)
