"""Connections that are opened and left, and too many of them."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from serve_samples import in_thread
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from captioner.serve.connections import limited_protocol
from captioner.serve.limits import Limits

LARGE = 50_000_000
"""Bytes, more than sockets hold."""

LARGE_IS_LEFT = threading.Event()

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Says "here" to every request; begins and ends as a server asks."""
    if scope["type"] == "lifespan":
        for phase in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{phase}.complete"})
        return
    while scope["path"] != "/early" and (await receive()).get("more_body"):
        pass
    if scope["path"] != "/large":
        await PlainTextResponse("here")(scope, receive, send)
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": LARGE * b"x", "more_body": True})
    await send({"type": "http.response.body"})  # Waits until all is sent, or the line is closed.
    LARGE_IS_LEFT.set()


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    found = urlsplit(address)
    with socket.create_connection((found.hostname, found.port), timeout=30) as line:
        yield line


def is_answered(line: socket.socket) -> bool:
    """Whether a whole answer comes, or the connection is closed."""
    answer = b""
    try:
        while not answer.endswith(b"here"):
            more = line.recv(65536)
            if not more:
                return False
            answer += more
    except ConnectionError:
        return False
    return True


def is_closed(line: socket.socket) -> bool:
    """Whether the server closes next, which is waited for."""
    try:
        return line.recv(65536) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("begun", [b"", REQUEST[:20]])
def test_a_connection_without_a_request_is_closed(begun: bytes) -> None:
    with in_thread(app, Limits(head_seconds=0.2)) as address, connected(address) as line:
        line.sendall(begun)
        assert is_closed(line)


def test_a_second_request_that_is_only_begun_is_closed() -> None:
    with in_thread(app, Limits(head_seconds=0.2)) as address, connected(address) as line:
        line.sendall(REQUEST)
        assert is_answered(line)
        line.sendall(REQUEST[:20])
        assert is_closed(line)


def test_a_content_that_comes_after_its_answer_holds_no_connection() -> None:
    with in_thread(app, Limits(head_seconds=0.2)) as address, connected(address) as line:
        line.sendall(b"GET /early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
        assert is_answered(line)
        line.sendall(b"x")
        assert is_closed(line)


def test_an_answer_that_is_not_read_holds_no_connection() -> None:
    with in_thread(app, Limits(seconds=0.3)) as address, connected(address) as line:
        line.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert LARGE_IS_LEFT.wait(30)
        read = 0
        with suppress(ConnectionError):
            while more := len(line.recv(65536)):
                read += more
        assert read < LARGE


def test_a_request_may_take_longer_than_its_head() -> None:
    with in_thread(app, Limits(head_seconds=0.2)) as address, connected(address) as line:
        line.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n")
        line.settimeout(0.6)
        with pytest.raises(TimeoutError):
            line.recv(65536)
        line.settimeout(30)
        line.sendall(b"body")
        assert is_answered(line)


@pytest.mark.parametrize("limit", ["connections", "connections_of_address"])
def test_one_connection_too_many_is_closed_and_others_are_answered(limit: str) -> None:
    limits = Limits(**{limit: 2})  # type: ignore[arg-type]
    with ExitStack() as stack:
        address = stack.enter_context(in_thread(app, limits))
        first, second = (stack.enter_context(connected(address)) for _ in range(2))
        for line in (first, second):
            line.sendall(REQUEST)
            assert is_answered(line)
        with connected(address) as third:
            assert is_closed(third)
        first.sendall(REQUEST)
        assert is_answered(first)
        second.close()
        for _ in range(1_000):  # The server may not yet have seen it.
            with connected(address) as third:
                third.sendall(REQUEST)
                if is_answered(third):
                    return
        pytest.fail("a connection that was closed still counts")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not limit file descriptors")
def test_connections_are_at_most_half_of_the_file_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (2, 2))
    with ExitStack() as stack:
        address = stack.enter_context(in_thread(app, Limits()))
        first = stack.enter_context(connected(address))
        first.sendall(REQUEST)
        assert is_answered(first)
        assert is_closed(stack.enter_context(connected(address)))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)
    assert limited_protocol(Limits())
