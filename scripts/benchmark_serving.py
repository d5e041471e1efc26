"""How much `captioner serve` gains by captioning requests that arrive together as one batch.

Starts it twice, once with --batch-size and once with batches of one, and sends the same photos to
each in turn: one request after another, and all at once. Prints photos a second, the processor
seconds that the server took for each (on Linux), and the ratios of both. On a machine that does
other things as well, the processor's time is the one to go by. The photos are pieces of the demo
photo.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmark_machine import described
from PIL import Image

from captioner.cli.program import run_program
from captioner.demo import DEMO_PHOTO
from captioner.devices import choose_device
from captioner.errors import UserError


def pieces(count: int, size: int) -> list[bytes]:
    """JPEG files of different pieces of the demo photo, `size` pixels a side."""
    found = []
    with Image.open(DEMO_PHOTO) as photo:
        for number in range(count):
            left, top = 7 * number % 150, 11 * number % 200
            piece = photo.crop((left, top, left + 340, top + 340)).resize((size, size))
            buffer = io.BytesIO()
            piece.save(buffer, "JPEG", quality=90)
            found.append(buffer.getvalue())
    return found


@dataclass
class Server:
    """A running `captioner serve`."""

    process: subprocess.Popen[str]
    address: str

    def processor_seconds(self) -> float | None:
        """How long processors worked for it so far; None where that cannot be known."""
        path = Path(f"/proc/{self.process.pid}/stat")
        if not path.exists():
            return None
        fields = path.read_text().rpartition(")")[2].split()  # From the third on; see proc(5).
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(batch_size: int, model: str, device: str) -> Iterator[Server]:
    """Start `captioner serve`, and end it."""
    command = [sys.executable, "-m", "captioner", "serve", "--port", "0", "--max-waiting", "100000"]
    command += ["--timeout", "3600", "--batch-size", str(batch_size)]
    process = subprocess.Popen(
        [*command, "--model", model, "--device", device], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        if found is None:
            raise UserError("the server did not start")
        yield Server(process, found[0])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


async def _seconds(address: str, photos: list[bytes], together: bool) -> float:
    """How long all photos take, each in a request of its own."""
    # Imported here: a development dependency.
    import httpx

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, limits=limits, timeout=None) as client:

        async def ask(photo: bytes) -> None:
            sent = [("photo", ("photo.jpg", photo))]
            answer = await client.post("/api/caption", files=sent, data={"maps": "false"})
            if answer.status_code != 200:
                raise UserError(f"the server answered {answer.text}")

        start = time.perf_counter()
        if together:
            await asyncio.gather(*(ask(photo) for photo in photos))
        else:
            for photo in photos:
                await ask(photo)
        return time.perf_counter() - start


@dataclass
class Turn:
    """What it took to caption all photos: seconds on the clock, and of processors if known."""

    clock: float
    processor: float | None


def turn(server: Server, photos: list[bytes], together: bool) -> Turn:
    """Caption all photos, each in a request of its own."""
    before = server.processor_seconds()
    clock = asyncio.run(_seconds(server.address, photos, together))
    after = server.processor_seconds()
    return Turn(clock, None if before is None or after is None else after - before)


def compared(what: str, slow: list[float | None], quick: list[float | None]) -> None:
    """Print by how much less the second took, turn by turn."""
    known = [(a, b) for a, b in zip(slow, quick, strict=True) if a is not None and b is not None]
    if known:
        ratios = [first / second for first, second in known]
        total = sum(first for first, _ in known) / sum(second for _, second in known)
        print(f"  {what}: {total:.2f} times ({min(ratios):.2f} to {max(ratios):.2f})")


def main() -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="default", help="(default: %(default)s)")
    parser.add_argument("--device", default="auto", help="(default: %(default)s)")
    parser.add_argument("--photos", type=int, default=64, help="(default: %(default)s)")
    parser.add_argument("--size", type=int, default=500, help="pixels (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=32, help="(default: %(default)s)")
    parser.add_argument("--repeat", type=int, default=3, help="turns (default: %(default)s)")
    arguments = parser.parse_args()
    if min(arguments.photos, arguments.size, arguments.batch_size, arguments.repeat) < 1:
        raise UserError("--photos, --size, --batch-size and --repeat are at least 1")
    print(described(choose_device(arguments.device)))
    photos = pieces(arguments.photos, arguments.size)
    names = ("one after another", "at once, one by one", "at once, together")
    turns: dict[str, list[Turn]] = {name: [] for name in names}
    with (
        server(1, arguments.model, arguments.device) as single,
        server(arguments.batch_size, arguments.model, arguments.device) as batched,
    ):
        for each in (single, batched):
            turn(each, photos[:4], True)  # Warm.
        for _ in range(arguments.repeat):
            turns[names[0]].append(turn(single, photos, False))
            turns[names[1]].append(turn(single, photos, True))
            turns[names[2]].append(turn(batched, photos, True))
    for name in names:
        rate = arguments.photos / median(each.clock for each in turns[name])
        work = [each.processor for each in turns[name] if each.processor is not None]
        known = f", {sum(work) / len(work) / arguments.photos:.3f} processor seconds each"
        print(f"{name:<22}{rate:>8.1f} photos a second{known if work else ''}")
    quick = turns[names[2]]
    for name in names[:2]:
        print(f"together against {name}:")
        slow = turns[name]
        compared("time", [each.clock for each in slow], [each.clock for each in quick])
        compared("work", [each.processor for each in slow], [each.processor for each in quick])
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main, "benchmark_serving"))
