"""Limits on connections: how many there are, and how long one may be idle.

Someone who opens connections and sends or reads nothing would otherwise keep them, until the
process has no file descriptors left.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from captioner.serve.limits import Limits


def limited_protocol(limits: Limits) -> type[H11Protocol]:
    """The HTTP protocol, which closes connections beyond the limits."""
    most = _most_connections(limits)

    class LimitedProtocol(H11Protocol):
        _overdue: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            open_ones: Any = self.connections
            hosts = [each.client and each.client[0] for each in open_ones]
            own = self.client and self.client[0]
            if len(hosts) > most or hosts.count(own) > limits.connections_of_address:
                transport.abort()
            else:
                self._await_request()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._await_request()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._await_request()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread = self.loop.call_later(limits.seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            _cancel(self._unread)
            self._unread = None

        def connection_lost(self, exc: Exception | None) -> None:
            _cancel(self._overdue)
            self._overdue = None
            _cancel(self._unread)
            self._unread = None
            super().connection_lost(exc)

        def _await_request(self) -> None:
            """Limit the time without a request that is being read or answered."""
            is_answering = self.cycle is not None and not self.cycle.response_complete
            if is_answering:
                _cancel(self._overdue)
                self._overdue = None
            elif self._overdue is None:
                self._overdue = self.loop.call_later(limits.head_seconds, self.transport.abort)

    return LimitedProtocol


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _most_connections(limits: Limits) -> int:
    """The limit of connections, at most half of the file descriptors that the process may open.

    Raises the process's own limit where that is needed and allowed.
    """
    try:
        import resource
    except ImportError:  # Windows
        return limits.connections
    wanted = 2 * limits.connections
    descriptors, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY or descriptors >= wanted:
        return limits.connections
    with contextlib.suppress(OSError, ValueError):  # More than is allowed.
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, allowed))
        descriptors = wanted
    return max(1, descriptors // 2)
