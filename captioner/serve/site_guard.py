"""Refuses requests that other web sites make through a visitor's browser.

The server has no password, and any site can have a browser send requests to it. Such a request
names its site (`Origin`, `Sec-Fetch-Site`), or, where the site's own name leads here (DNS
rebinding), a host name that is not this server's.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from captioner.serve.problems import Problem, answer_problem


class SiteGuard:
    """Refuses foreign host names everywhere, and other web sites under /api/.

    names: of this server, besides `localhost` and numeric addresses.
    public_url: of the page behind a proxy that rewrites the host name.
    """

    def __init__(
        self, app: ASGIApp, names: Iterable[str] = (), public_url: str | None = None
    ) -> None:
        self._app = app
        self._public = _place(public_url) if public_url else None
        names = [*names, self._public[1]] if self._public else names
        self._names = {"localhost", *(name.lower().rstrip(".") for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection."""
        app = self._app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if not self._is_own(headers.get("host", "")):
                app = _refusal(
                    "this server does not answer to that host name; --allow-host adds one"
                )
            elif scope["path"].startswith("/api/") and self._is_of_other_site(headers):
                app = _refusal("other sites may not use this server")
        await app(scope, receive, send)

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

    def _is_of_other_site(self, headers: Headers) -> bool:
        host, origins = headers.get("host", "").lower(), headers.getlist("origin")
        is_own = not origins or (
            len(origins) == 1
            and (origins[0].lower().partition("://")[2] == host or self._is_public(origins[0]))
        )
        return not is_own or headers.get("sec-fetch-site", "none") not in ("none", "same-origin")

    def _is_public(self, origin: str) -> bool:
        with contextlib.suppress(ValueError):
            return self._public is not None and _place(origin) == self._public
        return False


def _place(address: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of an address. Raises `ValueError` for one without sense."""
    parts = urlsplit(address.lower())
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, (parts.hostname or "").rstrip("."), port


def _refusal(sentence: str) -> ASGIApp:
    return answer_problem(Problem(403, sentence))
