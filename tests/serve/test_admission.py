from __future__ import annotations

import pytest

from captioner.errors import UserError
from captioner.serve.limits import Admission, Limits
from captioner.serve.problems import Problem


def admission(expected: float = 2.5, **limits: int) -> Admission:
    return Admission(Limits(**limits), lambda: expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["upload_bytes", "seconds", "waiting"])
def test_a_limit_that_is_none_is_refused(name: str, value: float) -> None:
    with pytest.raises(UserError, match=f"limit {name} is"):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_what_is_taken_is_given_back() -> None:
    counted = admission(waiting=5)
    with counted.place() as one, counted.place() as other:
        one.take_items(3)
        one.take_items(2)  # Three in all already.
        other.take_bytes(10)
        assert (counted.waiting, counted.waiting_bytes) == (4, 10)
    assert (counted.waiting, counted.waiting_bytes) == (0, 0)


def test_what_is_too_much_is_refused_and_counts_for_nothing() -> None:
    counted = admission(waiting=2, waiting_bytes=100)

    with counted.place() as place:
        with pytest.raises(Problem) as found:
            place.take_items(3)
        assert (found.value.status, found.value.headers) == (503, {"Retry-After": "3"})
        place.take_items(2)
        with pytest.raises(Problem, match="busy"):
            place.take_bytes(101)
        assert (counted.waiting, counted.waiting_bytes) == (2, 0)
        with pytest.raises(Problem, match="busy"):
            counted.place().__enter__()
        assert counted.waiting == 2
    assert counted.waiting == 0


@pytest.mark.parametrize(("expected", "said"), [(0.0, "1"), (0.2, "1"), (59.5, "60"), (1e9, "60")])
def test_how_long_to_wait_is_said_in_whole_seconds(expected: float, said: str) -> None:
    with pytest.raises(Problem) as found:
        admission(expected, waiting=1).take(2, 0)
    assert found.value.headers["Retry-After"] == said
