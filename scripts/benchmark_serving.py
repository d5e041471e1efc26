"""How much `captioner serve` gains by captioning requests that arrive together as one batch.

Starts it twice, once with --batch-size and once with batches of one, and sends the same photos to
each in turn: one request after another, and all at once. Prints photos a second, and the ratios,
which hold whatever else the machine is doing, for the turns alternate. The photos are pieces of
the demo photo.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from PIL import Image

from captioner.cli.program import run_program
from captioner.demo import demo_photo
from captioner.errors import UserError


def pieces(count: int, size: int) -> list[bytes]:
    """JPEG files of different pieces of the demo photo, `size` pixels a side."""
    found = []
    with Image.open(demo_photo()) as photo:
        for number in range(count):
            left, top = 7 * number % 150, 11 * number % 200
            piece = photo.crop((left, top, left + 340, top + 340)).resize((size, size))
            buffer = io.BytesIO()
            piece.save(buffer, "JPEG", quality=90)
            found.append(buffer.getvalue())
    return found


@contextmanager
def server(batch_size: int, model: str, device: str) -> Iterator[str]:
    """A running `captioner serve`; gives its address."""
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
        yield found[0]
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


def seconds(address: str, photos: list[bytes], together: bool) -> float:
    """How long all photos take, each in a request of its own."""
    return asyncio.run(_seconds(address, photos, together))


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
    photos = pieces(arguments.photos, arguments.size)
    names = ("one after another", "at once, one by one", "at once, together")
    times: dict[str, list[float]] = {name: [] for name in names}
    with (
        server(1, arguments.model, arguments.device) as single,
        server(arguments.batch_size, arguments.model, arguments.device) as batched,
    ):
        for address in (single, batched):
            seconds(address, photos[:4], True)  # Warm.
        for _ in range(arguments.repeat):
            times[names[0]].append(seconds(single, photos, False))
            times[names[1]].append(seconds(single, photos, True))
            times[names[2]].append(seconds(batched, photos, True))
    for name in names:
        print(f"{name:<22}{arguments.photos / median(times[name]):>8.1f} photos a second")
    for name in names[:2]:
        ratios = [slow / quick for slow, quick in zip(times[name], times[names[2]], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"together against {name}: {median(ratios):.2f} times as fast ({spread})")
    return 0


if __name__ == "__main__":
    sys.exit(run_program(main, "benchmark_serving"))
