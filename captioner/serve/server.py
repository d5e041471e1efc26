"""Listens, and runs the application until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import warnings
from typing import NamedTuple

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from captioner.errors import UserError
from captioner.serve import Limits

_CONNECTIONS = 512  # Half of the 1,024 file descriptors that Linux gives a process.
_HEAD_SECONDS = 10  # From a connection, or an answer, to the end of the next request's head.


class Listener(NamedTuple):
    """An open socket, its page's address for other devices, and the hosts of addresses."""

    socket: socket.socket
    address: str
    names: tuple[str, ...]


class _Protocol(H11Protocol):
    """Closes a connection whose next head is not whole in time; uvicorn waits for its rest."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Limit the time to the end of a head, as it is after an answer."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def data_received(self, data: bytes) -> None:
        """Read; a whole head alone ends the time."""
        self.conn.receive_data(data)
        self.handle_events()


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
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_HEAD_SECONDS,
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
