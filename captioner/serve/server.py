"""Listens, and runs the application until a signal ends it."""

from __future__ import annotations

import ipaddress
import logging
import socket
import warnings
from collections.abc import Iterable
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from captioner.errors import UserError
from captioner.serve.connections import limited_protocol
from captioner.serve.limits import Limits


@dataclass(frozen=True)
class Listener:
    """An open socket.

    address: of the page, as other devices reach it if they can. here: of the page, for a browser
    of this machine.
    """

    socket: socket.socket
    address: str
    here: str


def listen(host: str, port: int) -> Listener:
    """Open a socket. port: 0 for any free one.

    Raises `UserError` for a host or port that cannot be listened on.
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
    port = opened.getsockname()[1]
    if not ipaddress.ip_address(str(place[0]).partition("%")[0]).is_unspecified:
        address = _page(host, port)
        return Listener(opened, address, address)
    # One of many addresses: the one that a telephone in the same network can open.
    outside = _own_address(_families(opened)) or socket.gethostname()
    # Browsers allow the camera to a page of a loopback address.
    inside = "127.0.0.1" if socket.AF_INET in _families(opened) else "::1"
    return Listener(opened, _page(outside, port), _page(inside, port))


def configuration(app: ASGIApp, limits: Limits, access_log: bool = False) -> uvicorn.Config:
    """Settings of the server; at its end, open requests have `limits.seconds`."""
    if access_log:
        lines = logging.StreamHandler()
        lines.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        log = logging.getLogger("uvicorn.access")
        log.handlers, log.propagate = [lines], False
        log.setLevel(logging.INFO)
    return uvicorn.Config(
        app,
        http=limited_protocol(limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=access_log,
        server_header=False,
        backlog=2048,
        timeout_graceful_shutdown=max(1, round(limits.seconds)),
    )


def serve(app: ASGIApp, listener: Listener, limits: Limits, access_log: bool = False) -> None:
    """Answer requests until Ctrl-C or SIGTERM, then the open ones.

    A second Ctrl-C ends it immediately. access_log: a line on standard error for each request.
    """
    # The answer itself says that a sentence was too long.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning, module=r"captioner\.serve\.")
        try:
            uvicorn.Server(configuration(app, limits, access_log)).run(sockets=[listener.socket])
        except KeyboardInterrupt:  # The signal, raised again at the end.
            pass
        finally:
            listener.socket.close()


_FAR = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Reserved addresses (RFC 5737, RFC 3849), IPv4 first."""


def _families(opened: socket.socket) -> list[socket.AddressFamily]:
    """Versions of IP in which a socket that listens on all addresses can be reached."""
    if opened.family == socket.AF_INET6:
        alone = opened.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
        return [socket.AF_INET6] if alone else [socket.AF_INET, socket.AF_INET6]
    return [socket.AF_INET]


def _own_address(families: Iterable[socket.AddressFamily]) -> str | None:
    """This machine's address in its network; None without a network.

    Connecting a datagram socket looks up the address it would send from, and sends nothing.
    """
    for family in families:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((_FAR[family], 9))
                found = str(probe.getsockname()[0])
        except OSError:
            continue
        address = ipaddress.ip_address(found.partition("%")[0])
        if not (address.is_loopback or address.is_unspecified or "%" in found):
            return found
    return None


def _page(host: str, port: int) -> str:
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
