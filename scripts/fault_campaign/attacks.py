"""Sends the page hostile requests, and good ones beside them."""

from __future__ import annotations

import itertools
import random
import re
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
from cases import Materials
from damage import damage_bytes
from worker import Outcome

OPEN = re.compile(r"captioner: http://[^:]+:(\d+)/ is open")
MOST_IDLE = 100
"""Connections that stay open."""

PATIENCE = 30.0
"""Seconds for the answer to a request."""


def attack_server(materials: Materials, folder: Path, draw: random.Random) -> Iterator[Outcome]:
    """Damaged uploads, damaged requests and idle connections.

    After every nine a good photo must be captioned. Traces are counted in what the server prints.
    """
    errors = folder / "errors.txt"
    command = [sys.executable, "-m", "captioner", "serve", "--port", "0", "--no-translator"]
    with ExitStack() as stack:
        process = subprocess.Popen(
            [*command, "--model", str(materials.captioner)],
            stdout=subprocess.PIPE,
            stderr=stack.enter_context(errors.open("wb")),
            text=True,
        )
        stack.enter_context(process)
        stack.callback(process.kill)
        assert process.stdout is not None
        opened = OPEN.match(process.stdout.readline())
        if opened is None:
            yield "crashes", errors.read_text()
            return
        port, traces = int(opened[1]), 0
        client = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)
        )
        idle: deque[socket.socket] = deque()
        kinds = list(materials.photos.values())
        for number in itertools.count():
            if number % 10 == 9:
                yield _ask(client, materials.photos["PNG"], is_good=True)
                said = errors.read_text(errors="replace")
                for _ in range(traces, said.count("Traceback")):
                    yield "traces", said
                traces = said.count("Traceback")
            elif draw.random() < 0.5:
                yield _ask(client, damage_bytes(draw.choice(kinds), draw), is_good=False)
            else:
                files = {"photo": ("a.png", kinds[1])}
                request = client.build_request("POST", "/api/caption", files=files)
                head = "".join(f"{name}: {text}\r\n" for name, text in request.headers.items())
                whole = f"POST /api/caption HTTP/1.1\r\n{head}\r\n".encode() + request.read()
                line = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                with suppress(ConnectionError):  # It may have read enough.
                    line.sendall(damage_bytes(whole, draw))
                idle.append(line)
                if len(idle) > MOST_IDLE:
                    idle.popleft().close()
                yield "refused", ""
            if process.poll() is not None:
                yield "crashes", errors.read_text(errors="replace")
                return


def _ask(client: httpx.Client, photo: bytes, is_good: bool) -> Outcome:
    try:
        answer = client.post("/api/caption", files={"photo": ("a.png", photo)})
    except httpx.TimeoutException:
        return "hangs", "an upload was not answered"
    except httpx.TransportError as error:
        return "lost", f"an upload was not answered ({error})"
    if is_good and answer.status_code != 200:
        return "lost", f"a good photo got {answer.status_code}: {answer.text}"
    if answer.status_code not in (200, 422):
        return "traces", f"a damaged photo got {answer.status_code}: {answer.text}"
    return ("accepted" if answer.status_code == 200 else "refused"), ""
