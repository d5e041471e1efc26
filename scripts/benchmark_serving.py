"""How much `captioner serve` gains by captioning requests that arrive together as one batch.

Starts it twice, with batches of 32 and of one, and sends the same photos to each in turn: one
request after another, and all at once. Prints photos a second, and by how much less time all at
once take together, with the least and the largest of --repeat turns. The photos are pieces of the
demo photo.

  python scripts/benchmark_serving.py --photos 48 --repeat 2
"""

from __future__ import annotations

import argparse
import io
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median

import httpx
import torch
from benchmark_machine import described
from PIL import Image

from captioner.cli.program import run_program
from captioner.demo import DEMO_PHOTO
from captioner.errors import UserError

BATCH_SIZE = 32
SIZE = 500
"""Pixels a side of a photo."""


def pieces(count: int) -> list[bytes]:
    """JPEG files of different pieces of the demo photo."""
    found = []
    with Image.open(DEMO_PHOTO) as photo:
        for number in range(count):
            left, top = 7 * number % 150, 11 * number % 200
            buffer = io.BytesIO()
            piece = photo.crop((left, top, left + 340, top + 340)).resize((SIZE, SIZE))
            piece.save(buffer, "JPEG", quality=90)
            found.append(buffer.getvalue())
    return found


@contextmanager
def server(batch_size: int) -> Iterator[str]:
    """Start `captioner serve`, yield its address, and end it."""
    command = [sys.executable, "-m", "captioner", "serve", "--port", "0", "--max-waiting", "100000"]
    command += ["--timeout", "3600", "--batch-size", str(batch_size)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        if found is None:
            raise UserError("the server did not start")
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def seconds(address: str, photos: list[bytes], together: bool) -> float:
    """How long all photos take, each in a request of its own."""
    limits = httpx.Limits(max_connections=None)
    count = len(photos) if together else 1
    with (
        httpx.Client(base_url=address, limits=limits, timeout=None) as client,
        ThreadPoolExecutor(count) as threads,
    ):

        def ask(photo: bytes) -> None:
            sent = {"photo": ("photo.jpg", photo)}
            client.post("/api/caption", files=sent, data={"maps": "false"}).raise_for_status()

        begin = time.perf_counter()
        list(threads.map(ask, photos))
        return time.perf_counter() - begin


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=int, default=64, help="(default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="turns (default: %(default)s)")
    arguments = parser.parse_args()
    print(described(torch.device("cpu")))
    photos = pieces(arguments.photos)
    with server(1) as single, server(BATCH_SIZE) as batched:
        ways = {
            "one after another": (single, False),
            "at once, one by one": (single, True),
            "at once, together": (batched, True),
        }
        for address in (single, batched):
            seconds(address, photos[:4], True)  # To warm up.
        turns = [
            {name: seconds(address, photos, together) for name, (address, together) in ways.items()}
            for _ in range(arguments.repeat)
        ]
    for name in ways:
        rate = len(photos) / median(turn[name] for turn in turns)
        ratios = [turn[name] / turn["at once, together"] for turn in turns]
        print(f"{name:<22}{rate:>8.1f} photos a second, ", end="")
        print(f"{median(ratios):.2f} times the time ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    sys.exit(run_program(main, "benchmark_serving"))
