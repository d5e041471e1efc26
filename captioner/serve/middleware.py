"""What every request passes before its route: who may ask, how much, and for how long."""

from __future__ import annotations

import asyncio
from collections import deque
from urllib.parse import urlsplit

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


class SameOrigin:
    """Refuses requests under /api/ that other web sites make through a visitor's browser.

    The server has no password, and any site can have a browser send requests to it; the browser
    names the site (`Origin`, `Sec-Fetch-Site`).

    public_url: of the page behind a proxy that rewrites the host name.
    """

    def __init__(self, app: ASGIApp, public_url: str | None = None) -> None:
        self._app = app
        public = urlsplit((public_url or "").lower())
        port = "" if public.port in (None, 80, 443) else f":{public.port}"
        self._public_origin = f"{public.scheme}://{public.hostname}{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection."""
        app = self._app
        if scope["type"] == "http" and scope["path"].startswith("/api/"):
            headers = Headers(scope=scope)
            host = headers.get("host", "").lower()
            own = (f"http://{host}", f"https://{host}", self._public_origin)
            site = headers.get("sec-fetch-site", "none")
            if headers.get("origin", own[0]).lower() not in own or site not in (
                "none",
                "same-origin",
            ):
                app = answer_problem(HTTPException(403, "other sites may not use this server"))
        await app(scope, receive, send)


class Admission:
    """Bounds POST requests: how many wait, their content, and the time to their answer.

    Reads the content into memory and ends work whose client has left.
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
            return
        if self._waiting >= self._limits.waiting:
            await answer_problem(busy("too much is waiting already"))(scope, receive, send)
            return
        self._waiting += 1
        end = asyncio.get_running_loop().time() + self._limits.seconds
        try:
            content = await self._read(scope, receive, end)
            if content is not None:
                await self._answer(scope, content, receive, send, end)
        except HTTPException as problem:
            await answer_problem(problem)(scope, receive, send)
        finally:
            self._waiting -= 1

    async def _read(self, scope: Scope, receive: Receive, end: float) -> deque[bytes] | None:
        """The content in pieces; None where the client left."""
        maximum, seconds = self._limits.upload_bytes, self._limits.seconds
        too_large = HTTPException(413, f"the content is larger than {maximum:,} bytes, the limit")
        if int(Headers(scope=scope).get("content-length", 0)) > maximum:
            raise too_large
        chunks, size, more = deque[bytes](), 0, True
        while more:
            try:
                left = end - asyncio.get_running_loop().time()
                message = await asyncio.wait_for(receive(), left)
            except asyncio.TimeoutError:
                sentence = f"the content did not arrive within {seconds:g} seconds"
                raise HTTPException(408, sentence) from None
            if message["type"] == "http.disconnect":
                return None
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > maximum:
                raise too_large
            more = message.get("more_body", False)
        return chunks

    async def _answer(
        self, scope: Scope, content: deque[bytes], receive: Receive, send: Send, end: float
    ) -> None:
        """Run the route until it has answered, the client leaves or the time is over."""

        async def replay() -> Message:
            if not content:
                await asyncio.get_running_loop().create_future()  # Nothing comes any more.
            chunk = content.popleft()
            return {"type": "http.request", "body": chunk, "more_body": bool(content)}

        async def leave() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        work = asyncio.ensure_future(self._app(scope, replay, send))
        leaving = asyncio.ensure_future(leave())
        try:
            left = end - asyncio.get_running_loop().time()
            await asyncio.wait((work, leaving), timeout=left, return_when="FIRST_COMPLETED")
            if work.done():
                await work
            elif not leaving.done():
                raise busy(f"the answer was not ready within {self._limits.seconds:g} seconds")
        finally:
            work.cancel()
            leaving.cancel()
