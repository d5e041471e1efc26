"""Limits on connections: how many there are, and how long one may be idle.

Someone who opens connections and sends or reads nothing would otherwise keep them, until the
process has no file descriptors left.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

from captioner.serve.limits import Limits


def limited_protocol(limits: Limits) -> type[H11Protocol]:
    """The HTTP protocol, which closes connections beyond the limits.

    uvicorn itself closes idle ones after a first answer only.
    """

    class LimitedProtocol(H11Protocol):
        _overdue: asyncio.TimerHandle | None = None
        _unread: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.abort()
            else:
                self._await_request()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._await_request()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread = self.loop.call_later(limits.seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            _cancel(self._unread)

        def connection_lost(self, exc: Exception | None) -> None:
            _cancel(self._overdue)
            _cancel(self._unread)
            super().connection_lost(exc)

        def _await_request(self) -> None:
            """Limit the time without a request that is being read or answered."""
            if self.cycle is not None and not self.cycle.response_complete:
                _cancel(self._overdue)
                self._overdue = None
            elif self._overdue is None:
                self._overdue = self.loop.call_later(limits.head_seconds, self.transport.abort)

    return LimitedProtocol


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
