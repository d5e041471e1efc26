"""How much a server takes in: of one request, and of all together."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from types import TracebackType

from captioner.errors import UserError
from captioner.serve.problems import busy


@dataclass(frozen=True)
class Limits:
    """Limits of a server; each holds for one request unless it says otherwise.

    upload_bytes: of a request's content. pixels: width times height of a photo.
    photos, sentences: in a request. characters: of a sentence.
    beam: the widest beam, and the most captions of a photo. words: of the longest caption asked
    for. seconds: from a request's first byte to its answer.
    waiting: photos and sentences of all requests that are not answered yet.
    waiting_bytes: of the contents of all those requests.

    Raises `UserError` naming the limit that is not above 0.
    """

    upload_bytes: int = 32 * 1024**2
    pixels: int = 64_000_000
    photos: int = 16
    sentences: int = 16
    characters: int = 2_000
    beam: int = 20
    words: int = 100
    seconds: float = 60.0
    waiting: int = 256
    waiting_bytes: int = 512 * 1024**2

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < math.inf:
                raise UserError(f"limit {name} is {value:g}, which is not above 0")


class Admission:
    """Counts what was taken in and is not answered yet, and refuses what is too much.

    Not for use by several threads.
    """

    def __init__(self, limits: Limits, expected_seconds: Callable[[], float]) -> None:
        """expected_seconds: tells how long what is waiting now will take."""
        self._limits = limits
        self._expected_seconds = expected_seconds
        self.waiting = 0
        self.waiting_bytes = 0

    def place(self) -> Place:
        """A request's share, to be entered; it counts for one from then on.

        Raises `Problem` with status 503 on entering where there is no room.
        """
        return Place(self, self._limits.seconds)

    def take(self, items: int, size: int) -> None:
        """Count items and bytes; raises `Problem` with status 503 where there is no room."""
        over = self.waiting + items > self._limits.waiting
        if over or self.waiting_bytes + size > self._limits.waiting_bytes:
            raise busy(self._expected_seconds())
        self.waiting += items
        self.waiting_bytes += size

    def give_back(self, items: int, size: int) -> None:
        """What was taken is answered."""
        self.waiting -= items
        self.waiting_bytes -= size


class Place:
    """What one request has taken, given back when it is left; and the time it has."""

    def __init__(self, admission: Admission, seconds: float) -> None:
        self._admission = admission
        self._items = 0
        self._size = 0
        self.seconds = seconds
        self._ends = math.inf

    def __enter__(self) -> Place:
        self._ends = time.monotonic() + self.seconds
        self.take_items(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._admission.give_back(self._items, self._size)

    @property
    def seconds_left(self) -> float:
        """How much of its time is left, at least 0."""
        return max(0.0, self._ends - time.monotonic())

    def take_items(self, total: int) -> None:
        """Count for so many photos or sentences in all, and not less than before.

        Raises `Problem` with status 503 where there is no room.
        """
        more = max(0, total - self._items)
        self._admission.take(more, 0)
        self._items += more

    def take_bytes(self, more: int) -> None:
        """Count so many bytes more. Raises `Problem` with status 503 where there is no room."""
        self._admission.take(0, more)
        self._size += more
