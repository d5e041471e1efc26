"""What every request passes before its route: how much, how long, and the headers of answers."""

from __future__ import annotations

import asyncio

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioner.serve.limits import Limits
from captioner.serve.messages import answer_problem, busy

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; media-src 'self' blob:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}
"""File names and captions on the page come from outside: a browser runs only the page's scripts."""


class AnswerHeaders:
    """Adds headers to every answer, errors included, and answers HEAD as GET.

    The server leaves out the content of an answer to HEAD.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection."""
        if scope.get("method") == "HEAD":  # FastAPI's routes refuse it.
            scope = {**scope, "method": "GET"}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                is_api = scope["path"].startswith("/api/")
                headers["Cache-Control"] = "no-store" if is_api else "no-cache"
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Admission:
    """Bounds POST requests: how many wait, their content, and the time to their answer.

    Ends work whose client has left.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._limits = limits
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection; `waiting` of its state is the number of requests."""
        scope.setdefault("state", {})["waiting"] = self._waiting
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif self._waiting >= self._limits.waiting:
            await answer_problem(busy("too much is waiting already"))(scope, receive, send)
        elif int(Headers(scope=scope).get("content-length", 0)) > self._limits.upload_bytes:
            await answer_problem(self._too_large())(scope, receive, send)
        else:
            self._waiting += 1
            try:
                await self._answer(scope, receive, send)
            finally:
                self._waiting -= 1

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the route until it has answered, the client leaves or the time is over."""
        size, complete = 0, asyncio.Event()

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self._limits.upload_bytes:
                raise self._too_large()
            if not message.get("more_body", False):
                complete.set()
            return message

        async def leave() -> None:
            await complete.wait()
            while (await receive())["type"] != "http.disconnect":
                pass

        work = asyncio.ensure_future(self._app(scope, receive_limited, send))
        leaving = asyncio.ensure_future(leave())
        try:
            seconds = self._limits.seconds
            await asyncio.wait((work, leaving), timeout=seconds, return_when="FIRST_COMPLETED")
            if work.done():
                await work
            elif not leaving.done():
                late = busy(f"the answer was not ready within {seconds:g} seconds")
                await answer_problem(late)(scope, receive, send)
        finally:
            work.cancel()
            leaving.cancel()

    def _too_large(self) -> HTTPException:
        most = self._limits.upload_bytes
        return HTTPException(413, f"the content is larger than {most:,} bytes, the limit")
