"""Sends the page hostile requests, and good ones beside them."""

from __future__ import annotations

import io
import random
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import httpx
from cases import Materials
from damage import damage_bytes
from tally import Tally

OPEN = re.compile(r"captioner: http://[^:]+:(\d+)/ is open")
MOST_IDLE = 100
"""Connections that stay open."""

PATIENCE = 30.0
"""Seconds for the answer to a good request."""


def attack_server(folder: Path, draw: random.Random, seconds: float, tally: Tally) -> None:
    """Until the time is over: damaged uploads, damaged requests and idle connections.

    After every ten a good photo must be captioned. Traces are counted in what the server prints.
    """
    materials = Materials(folder / "good")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "captioner", "serve", "--port", "0", "--no-translator"),
            *("--model", str(materials.captioner)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    opened = OPEN.match(process.stdout.readline())
    if opened is None:
        process.kill()
        tally.count("crashes", process.communicate()[1])
        return
    errors: list[str] = []
    reader = threading.Thread(target=_read_lines, args=(process.stderr, errors))
    reader.start()
    port, idle, end = int(opened[1]), list[socket.socket](), time.monotonic() + seconds
    kinds = list(materials.photos.values())
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE) as client:
            for number in range(1_000_000):
                if time.monotonic() > end or process.poll() is not None:
                    break
                if number % 10 == 9:
                    _ask(client, materials.photos["PNG"], is_good=True, tally=tally)
                elif draw.random() < 0.5:
                    bad = damage_bytes(draw.choice(kinds), draw)
                    _ask(client, bad, is_good=False, tally=tally)
                else:
                    request = client.build_request(
                        "POST", "/api/caption", files={"photo": ("a.png", kinds[1])}
                    )
                    head = "".join(f"{name}: {text}\r\n" for name, text in request.headers.items())
                    whole = f"POST /api/caption HTTP/1.1\r\n{head}\r\n".encode() + request.read()
                    idle.append(_send(port, damage_bytes(whole, draw)))
                    if len(idle) > MOST_IDLE:
                        idle.pop(0).close()
                    tally.count("refused", "")
        if process.poll() is not None:
            tally.count("crashes", "".join(errors))
    finally:
        for line in idle:
            line.close()
        process.kill()
        reader.join()
        process.wait()
        process.stdout.close()
    for _ in range("".join(errors).count("Traceback")):
        tally.count("traces", "".join(errors))


def _read_lines(file: IO[str], lines: list[str]) -> None:
    with file:
        lines.extend(file)


def _send(port: int, content: bytes) -> socket.socket:
    """A connection that stays open, after sending something."""
    line = socket.create_connection(("127.0.0.1", port))
    with suppress(ConnectionError):  # It may have read enough.
        line.sendall(content)
    return line


def _ask(client: httpx.Client, photo: bytes, is_good: bool, tally: Tally) -> None:
    try:
        answer = client.post("/api/caption", files={"photo": ("a.png", io.BytesIO(photo))})
    except httpx.TimeoutException:
        tally.count("hangs", "an upload was not answered")
    except httpx.TransportError as error:
        tally.count("lost", f"an upload was not answered ({error})")
    else:
        if is_good and answer.status_code != 200:
            tally.count("lost", f"a good photo got {answer.status_code}: {answer.text}")
        elif answer.status_code not in (200, 422):
            tally.count("traces", f"a damaged photo got {answer.status_code}: {answer.text}")
        else:
            tally.count("accepted" if answer.status_code == 200 else "refused", "")
