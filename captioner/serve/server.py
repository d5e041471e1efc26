"""Listens, and runs the application until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import warnings
from typing import NamedTuple

import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from captioner.errors import UserError
from captioner.serve import Limits

_CONNECTIONS = 512  # Half of the 1,024 file descriptors that Linux gives a process.
_HEAD_SECONDS = 10  # From a connection, or an answer, to the end of the next request's head.
_BUSY = {"error": "busy: too many connections are open"}
_FULL = JSONResponse(_BUSY, 503, {"Retry-After": "2", "Connection": "close"})
_NOT_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error":"the request is not valid HTTP"}'
)


class Listener(NamedTuple):
    """An open socket, its page's address for other devices, and the hosts of addresses."""

    socket: socket.socket
    address: str
    names: tuple[str, ...]


class _Protocol(H11Protocol):
    """Closes connections that ask for nothing, and refuses in the form of the interface."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Limit the time to the end of a head; a full house closes a connection that is idle."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._close_idle)
        if len(self.connections) <= _CONNECTIONS:
            return
        others = (each for each in self.connections if isinstance(each, _Protocol))
        idle = [other for other in others if other is not self and other.is_idle]
        if idle:
            oldest = min(idle, key=lambda other: other._timer.when())
            oldest.transport.abort()
        else:
            self.app = _FULL

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the timer."""
        self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._timer.cancel()
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._close_idle)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, without a cycle that could answer."""
        self.transport.write(_NOT_HTTP)
        self.transport.close()

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _close_idle(self) -> None:
        if self.is_idle:
            self.transport.close()


def listen(host: str, port: int) -> Listener:
    """Open a socket. port: 0 for any free one."""
    is_version_6 = ":" in host
    try:
        opened = socket.create_server(
            (host, port),
            family=socket.AF_INET6 if is_version_6 else socket.AF_INET,
            backlog=2048,
            dualstack_ipv6=is_version_6 and socket.has_dualstack_ipv6(),
        )
    except (OSError, OverflowError, UnicodeError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]
        raise UserError(
            f"cannot listen on {host!r}, port {port}: {reason.rstrip('.')}; see --host and --port"
        ) from None
    bound, port = opened.getsockname()[:2]
    machine = socket.gethostname()
    named = f"[{host}]" if is_version_6 else host
    reached = _own_address() if bound in ("0.0.0.0", "::") else named
    names = (named, reached, machine, f"{machine}.local")
    return Listener(opened, f"http://{reached}:{port}/", names)


def configuration(app: ASGIApp, limits: Limits, access_log: bool = False) -> uvicorn.Config:
    """Settings of the server; at its end, open requests have `limits.seconds`."""
    if access_log:
        logging.basicConfig(format="%(asctime)s %(message)s")
        logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    return uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        log_config=None,
        access_log=access_log,
        server_header=False,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=max(1, round(limits.seconds)),
    )


def serve(app: ASGIApp, listener: Listener, limits: Limits, access_log: bool = False) -> None:
    """Answer requests until Ctrl-C or SIGTERM, then the open ones; another Ctrl-C ends these."""
    # Ctrl-C is raised again at the end.
    with warnings.catch_warnings(), contextlib.suppress(KeyboardInterrupt):
        # The answer itself says that a sentence was too long.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"captioner\.")
        uvicorn.Server(configuration(app, limits, access_log)).run(sockets=[listener.socket])


def _own_address() -> str:
    """This machine's address in its network; its name without a network."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("192.0.2.1", 9))  # Reserved (RFC 5737). Sends nothing.
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
