"""Bounds what requests take: bytes, waiting work, time.

The server decodes and captions what strangers send. Unbounded, many uploads fill its memory, and
work goes on for clients that left long ago. The framework limits neither all requests together
nor their time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioner.serve.limits import Limits
from captioner.serve.problems import Problem, answer_problem, busy


class Admission:
    """Counts photos, sentences and bytes that are not yet answered. Not thread-safe."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.waiting = 0
        self.waiting_bytes = 0

    @contextmanager
    def place(self) -> Iterator[Place]:
        """The share of one request, which counts for one photo or more until it is left.

        Raises `Problem` with status 503 where there is no room.
        """
        place = Place(self)
        place.take(items=1)
        try:
            yield place
        finally:
            self.waiting -= place.items
            self.waiting_bytes -= place.size


class Place:
    """The share of one request: its photos or sentences, its bytes, its time."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._end = time.monotonic() + admission.limits.seconds
        self.items = 0
        self.size = 0

    @property
    def seconds_left(self) -> float:
        """Time left to the request, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def take(self, items: int = 0, size: int = 0) -> None:
        """Count at least so many items in all, and so many more bytes.

        Raises `Problem` with status 503 where there is no room.
        """
        total, more = self._admission, max(0, items - self.items)
        if (
            total.waiting + more > total.limits.waiting
            or total.waiting_bytes + size > total.limits.waiting_bytes
        ):
            raise busy("too much is waiting already")
        self.items += more
        self.size += size
        total.waiting += more
        total.waiting_bytes += size


class AdmissionMiddleware:
    """Reads the content of a POST into memory within the limits, and cancels work nobody awaits.

    The route finds its `Place` in `request.state.place`.
    """

    def __init__(self, app: ASGIApp, admission: Admission) -> None:
        self._app = app
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            with self._admission.place() as place:
                content = await self._read(scope, receive, place)
                if content is not None:
                    scope.setdefault("state", {})["place"] = place
                    await self._answer(scope, content, receive, send, place)
        except Problem as problem:
            await answer_problem(problem)(scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive, place: Place) -> deque[bytes] | None:
        """The content in pieces; None where the client left.

        Raises `Problem`: 408 for content that comes too slowly, 413 for too much, 503 where there
        is no room.
        """
        limits, chunks, more = self._admission.limits, deque[bytes](), True
        maximum = limits.upload_bytes
        too_large = Problem(413, f"the content is larger than {maximum:,} bytes, the limit")
        if int(Headers(scope=scope).get("content-length", 0)) > maximum:
            raise too_large
        while more:
            try:
                message = await asyncio.wait_for(receive(), place.seconds_left)
            except asyncio.TimeoutError:
                sentence = f"the content did not arrive within {limits.seconds:g} seconds"
                raise Problem(408, sentence) from None
            if message["type"] == "http.disconnect":
                return None
            chunks.append(message.get("body", b""))
            place.take(size=len(chunks[-1]))
            if place.size > maximum:
                raise too_large
            more = message.get("more_body", False)
        return chunks

    async def _answer(
        self, scope: Scope, content: deque[bytes], receive: Receive, send: Send, place: Place
    ) -> None:
        """Run the route until it has answered, the client leaves or the time is over.

        Raises `Problem` with status 503 when the time is over.
        """

        async def replay() -> Message:
            if not content:
                await asyncio.get_running_loop().create_future()  # Nothing comes any more.
            chunk = content.popleft()
            return {"type": "http.request", "body": chunk, "more_body": bool(content)}

        work = asyncio.ensure_future(self._app(scope, replay, send))
        leaving = asyncio.ensure_future(_leaving(receive))
        try:
            await asyncio.wait(
                (work, leaving), timeout=place.seconds_left, return_when=asyncio.FIRST_COMPLETED
            )
            if work.done():
                await work
            elif not leaving.done():
                seconds = self._admission.limits.seconds
                raise busy(f"the answer was not ready within {seconds:g} seconds")
        finally:
            work.cancel()
            leaving.cancel()


async def _leaving(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
