"""Refuses requests that other web sites make through a visitor's browser.

The server has no password, and any site can have a browser send requests to it. Such a request
names its site (`Origin`, `Sec-Fetch-Site`), or, where the site's own name leads here (DNS
rebinding), a host name that is not this server's.
"""

from __future__ import annotations

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
        public = urlsplit((public_url or "").lower())
        port = "" if public.port in (None, 80, 443) else f":{public.port}"
        self._public_origin = f"{public.scheme}://{public.hostname}{port}"
        self._names = {"localhost", public.hostname, *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one ASGI connection."""
        app = self._app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host = headers.get("host", "").lower()
            if not self._is_own(host):
                app = _refusal(
                    "this server does not answer to that host name; --allow-host adds one"
                )
            elif scope["path"].startswith("/api/") and self._is_of_other_site(host, headers):
                app = _refusal("other sites may not use this server")
        await app(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name not in self._names:
                ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _is_of_other_site(self, host: str, headers: Headers) -> bool:
        own = (f"http://{host}", f"https://{host}", self._public_origin)
        site = headers.get("sec-fetch-site", "none")
        return headers.get("origin", own[0]).lower() not in own or site not in (
            "none",
            "same-origin",
        )


def _refusal(sentence: str) -> ASGIApp:
    return answer_problem(Problem(403, sentence))
