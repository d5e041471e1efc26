"""What stands before every address: who may ask, and what every answer carries."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from captioner.serve.answers import problem_answer
from captioner.serve.problems import Problem

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; media-src 'self' blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Nothing is loaded from elsewhere, and nothing in the page is run that is not a file of it."""

_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
}

_log = logging.getLogger(__name__)


class Guard:
    """Refuses requests that other sites have a browser make, and lets no fault show.

    names: what this server may be called besides `localhost` and addresses in numbers. A site
    that has its own name lead here (DNS rebinding) cannot use it, for a browser sends that name.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower().rstrip(".") for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, as ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                api = str(scope["path"]).startswith("/api/")
                headers["Cache-Control"] = "no-store" if api else "no-cache"
            await send(message)

        try:
            self._check(Headers(scope=scope), str(scope["path"]))
            await self._app(scope, receive, send_guarded)
        except Problem as problem:
            await problem_answer(problem)(scope, receive, send_guarded)
        except Exception:
            _log.exception("a request failed")  # For whoever runs the server, and nobody else.
            if begun:
                raise
            fault = Problem(500, "the server failed at this; its own output says how")
            await problem_answer(fault)(scope, receive, send_guarded)

    def _check(self, headers: Headers, path: str) -> None:
        """Raise `Problem` with status 403 for a request that should not be here."""
        host = headers.get("host", "")
        if not self._is_own(host):
            raise Problem(
                403, "this server does not answer to that host name; --allow-host adds one"
            )
        if not path.startswith("/api/"):
            return
        origin = headers.get("origin")
        own = origin is None or origin.lower().partition("://")[2] == host.lower()
        if not own or headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise Problem(403, "other sites may not use this server")

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        if name is None or "@" in host:
            return False
        if name.rstrip(".") in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
