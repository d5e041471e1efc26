"""Connections that ask for nothing, and too many of them."""

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


def test_too_many_connections_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_CONNECTIONS", 2)
    with asking(Service(make_captioner())) as client:
        lines = [connect(client) for _ in range(2)]
        time.sleep(0.2)
        assert httpx.get(client.base_url.join("/api/health")).status_code == 503
        for line in lines:
            line.close()
