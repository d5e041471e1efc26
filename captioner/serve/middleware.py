"""What every request passes before its route: how much, how long, and the headers of answers."""

from __future__ import annotations

import asyncio
import secrets

from fastapi import HTTPException
from fastapi.security.utils import get_authorization_scheme_param
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioner.serve import Limits
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


class Authorization:
    """Refuses requests to the interface without its token, if there is one (RFC 6750)."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection. The page and the description need no token."""
        app, path = self._app, scope.get("path", "")
        if self._token and path.startswith("/api/") and path != "/api/openapi.json":
            header = Headers(scope=scope).get("authorization")
            scheme, given = get_authorization_scheme_param(header)
            is_right = secrets.compare_digest(given.encode(), self._token.encode())
            if scheme.lower() != "bearer" or not is_right:
                reason = "the token is missing or wrong: the header is Authorization: Bearer TOKEN"
                app = answer_problem(HTTPException(401, reason, {"WWW-Authenticate": "Bearer"}))
        await app(scope, receive, send)


class Admission:
    """Bounds POST requests: how many wait, their content, and the time to their answer."""

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
        limits, size = self._limits, 0
        too_large = HTTPException(
            413, f"the content is larger than {limits.upload_bytes:,} bytes, the limit"
        )

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > limits.upload_bytes:
                raise too_large
            return message

        problem = None
        if self._waiting >= limits.waiting:
            problem = busy("too much is waiting already")
        elif int(Headers(scope=scope).get("content-length", 0)) > limits.upload_bytes:
            problem = too_large
        else:
            self._waiting += 1
            try:
                await asyncio.wait_for(self._app(scope, receive_limited, send), limits.seconds)
            except asyncio.TimeoutError:
                problem = busy(f"the answer was not ready within {limits.seconds:g} seconds")
            finally:
                self._waiting -= 1
        if problem is not None:
            await answer_problem(problem)(scope, receive, send)
