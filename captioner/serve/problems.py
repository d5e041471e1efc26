"""What a request is answered that cannot be fulfilled: a status and one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping


class Problem(Exception):  # noqa: N818 - what the other side is told, not a fault of the program
    """A request that is refused.

    status: of the HTTP answer, from 400. sentence: says why, and names the field; it is what the
    other side reads, so it holds nothing about this machine. headers: of the answer.
    """

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = dict(headers or {})


def busy(seconds: float) -> Problem:
    """More has come in than is taken in at once; worth another try in so many seconds."""
    wait = min(max(1, math.ceil(seconds)), 60)
    return Problem(503, "busy: too much is waiting already", {"Retry-After": str(wait)})


def too_slow(seconds: float) -> Problem:
    """What was taken in was not done within the time of a request, in seconds."""
    sentence = f"busy: the answer was not ready within {seconds:g} seconds"
    return Problem(503, sentence, {"Retry-After": "5"})


def field_problem(field: str, sentence: str) -> Problem:
    """A field of a request has a value that cannot be used."""
    return Problem(422, f"field {field!r} {sentence}")
