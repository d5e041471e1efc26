from __future__ import annotations

import pytest

from captioner.serve.admission import Admission
from captioner.serve.limits import Limits
from captioner.serve.problems import Problem


def test_places_are_counted_and_given_back_and_too_much_is_refused() -> None:
    counted = Admission(Limits(waiting=3, waiting_bytes=100))
    with counted.place() as one, counted.place() as other:
        one.take(items=2)
        one.take(items=1)  # Two in all already.
        other.take(size=10)
        for items, size in ((3, 0), (0, 91)):
            with pytest.raises(Problem, match="busy") as refusal:
                one.take(items, size)
            assert refusal.value.status_code == 503
            assert int(refusal.value.headers["Retry-After"]) > 0
        with pytest.raises(Problem, match="busy"), counted.place():
            pass
        assert (counted.waiting, counted.waiting_bytes) == (3, 10)
    assert (counted.waiting, counted.waiting_bytes) == (0, 0)
