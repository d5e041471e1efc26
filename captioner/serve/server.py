"""Listening, until it is told to stop."""

from __future__ import annotations

import socket
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from captioner.errors import UserError


@dataclass(frozen=True)
class Listener:
    """An open socket, and the address of the page there."""

    socket: socket.socket
    address: str


def listen(host: str, port: int) -> Listener:
    """Open a socket. port: 0 for any that is free.

    Raises `UserError` where that cannot be.
    """
    if not 0 <= port <= 65535:
        raise UserError(f"port {port} is not between 0 and 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = found[0]
        opened = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise UserError(f"cannot listen on {host!r}: {_reason(error)}") from None
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(place)
        opened.listen(2048)
    except OSError as error:
        opened.close()
        reason = _reason(error)
        raise UserError(f"cannot listen on {host}, port {port}: {reason}; try --port 0") from None
    shown = f"[{host}]" if ":" in host else host
    return Listener(opened, f"http://{shown}:{opened.getsockname()[1]}/")


def configuration(app: ASGIApp, seconds: float) -> uvicorn.Config:
    """How the application is served. seconds: how long the end waits for requests under way."""
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=2048,
        timeout_graceful_shutdown=max(1, round(seconds)),
    )


def serve(app: ASGIApp, listener: Listener, seconds: float, ready: Callable[[], None]) -> None:
    """Answer requests until Ctrl-C or SIGTERM; those under way are answered before it returns.

    seconds: after which it no longer waits for them. A second Ctrl-C ends it at once.
    ready: called when requests are answered.
    """
    server = _Server(configuration(app, seconds), ready)
    # That a sentence is too long is part of the answer.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"captioner\.serve\.")
        try:
            server.run(sockets=[listener.socket])
        except KeyboardInterrupt:  # The signal once more, when all is done.
            pass
        finally:
            listener.socket.close()


class _Server(uvicorn.Server):
    """Says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As of the server; then `ready` is called."""
        await super().startup(sockets)
        self._ready()


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
