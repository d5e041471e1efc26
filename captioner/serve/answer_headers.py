"""Headers of every answer, errors included, and HEAD requests, which ask for these alone.

File names and captions on the page come from outside. With this policy a browser runs only the
page's own scripts, loads nothing from elsewhere and keeps no answer.
"""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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


def with_headers(app: ASGIApp) -> ASGIApp:
    """The application, with these headers in every answer; HEAD is answered as GET.

    The server leaves out the content of an answer to HEAD.
    """

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD":  # FastAPI's routes refuse it.
            scope = {**scope, "method": "GET"}

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                is_api = scope["path"].startswith("/api/")
                headers["Cache-Control"] = "no-store" if is_api else "no-cache"
            await send(message)

        await app(scope, receive, send_with_headers)

    return run
