"""Connections that ask for nothing, too many of them, and what is not HTTP."""

import json
import socket
import time

import httpx
import pytest
from serve_samples import asking, make_captioner

from captioner.serve import server
from captioner.serve.service import Service


def connect(client: httpx.Client, content: bytes = b"") -> socket.socket:
    port = client.base_url.port
    assert port is not None
    line = socket.create_connection(("127.0.0.1", port), timeout=60)
    line.sendall(content)
    return line


def test_idle_connections_and_half_heads_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_HEAD_SECONDS", 0.2)
    whole = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with asking(Service(make_captioner())) as client:
        for content in (b"", whole[:20], whole + whole[:20]):
            with connect(client, content) as line:
                assert (b'"ok"' in line.makefile("rb").read()) == content.startswith(whole)


def test_a_full_house_closes_idle_connections_and_else_refuses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_CONNECTIONS", 2)
    begun = b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    with asking(Service(make_captioner())) as client:
        idle = [connect(client) for _ in range(2)]
        assert httpx.get(client.base_url.join("/api/health")).status_code == 200
        time.sleep(0.2)
        busy = [connect(client, begun) for _ in range(2)]
        time.sleep(0.2)
        answer = httpx.get(client.base_url.join("/api/health"))
        for line in (*idle, *busy):
            line.close()
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert answer.json() == {"error": "busy: too many connections are open"}


def test_what_is_not_http_is_refused_in_json() -> None:
    with asking(Service(make_captioner())) as client, connect(client, b"nonsense\r\n\r\n") as line:
        head, _, content = line.makefile("rb").read().partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert json.loads(content) == {"error": "the request is not valid HTTP"}
