"""Decodes untrusted photos in other processes, with limits of time and memory.

A crafted file holds or crashes its decoder: a process can be killed, a thread cannot. The processes
of `multiprocessing`, and of libraries over it, would import the user's program again.
"""

import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from PIL import Image

from captioner.errors import UserError
from captioner.files import JsonObject
from captioner.memory_limits import allowed_cores
from captioner.vision.formats import HELD, load_here

MEMORY = HELD + 200_000_000  # Bytes that a process may allocate, where the system can limit it.
SECONDS = 20.0  # Default limit for a photo.
_START = 2.0  # Least limit for the start of a process, which imports.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from captioner.vision.decoding_process import answer_requests; answer_requests()"
)
# An idle process gives its memory back to the system (glibc).
_ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_ARENA_MAX": "1"}

Answer = tuple[JsonObject, bytes]  # With a photo's pixels.


class DecodingPool:
    """Processes that decode photos, each for one thread at a time. seconds: limit for a photo."""

    def __init__(self, processes: int, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._decoders = [_Decoder() for _ in range(processes)]
        self._idle: queue.SimpleQueue[_Decoder] = queue.SimpleQueue()
        for decoder in self._decoders:
            self._idle.put(decoder)

    def load(
        self, content: bytes, name: str, seconds: float | None = None, **options: int | None
    ) -> Image.Image:
        """Load a photo's file in the next idle process. seconds: in place of the pool's.

        options: of `load_here`; thumbnail: the longest side.
        """
        seconds = seconds or self.seconds
        request = {"name": name, "bytes": len(content), "seconds": seconds, "options": options}
        decoder = self._idle.get()
        try:
            answer, pixels = decoder.ask(request, content)
        except TimeoutError:
            limit = f"the decoder took more than {seconds:g} s, the limit (--decoding-seconds)"
            raise UserError(f"{name} cannot be decoded: {limit}") from None
        except (OSError, ValueError):
            raise UserError(f"{name} cannot be decoded: the decoder crashed") from None
        finally:
            self._idle.put(decoder)
        if "error" in answer:
            raise UserError(answer["error"])
        photo = Image.frombytes("RGB", tuple(answer["size"]), pixels)
        photo.info = answer["info"]
        return photo

    def close(self) -> None:
        """End the processes, once they are idle."""
        for _ in self._decoders:
            self._idle.get().close()


@cache
def shared_pool(process_id: int) -> DecodingPool:
    """The pool for the photos that `load_image` does not decode itself; a fork has its own."""
    return DecodingPool(min(4, max(1, allowed_cores() // 2)))


class _Decoder:
    """A process that starts for its first photo, and again when it has ended."""

    _process: Any = None  # A `Popen`.

    def ask(self, request: JsonObject, content: bytes) -> Answer:
        """The answer and the pixels. Raises `TimeoutError`, and other errors after a crash."""
        seconds = request["seconds"]
        try:
            if self._process is None or self._process.poll() is not None:
                self._start()
                self._exchange({}, b"", max(seconds, _START))
            return self._exchange(request, content, seconds)
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        # Isolated, it imports nothing from the current folder.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # Decoders print about damaged files.
            env={**os.environ, **_ALLOCATION},
        )

    def _exchange(self, request: JsonObject, content: bytes, seconds: float) -> Answer:
        """Send a request; returns its answer and pixels. Kills a process that takes longer."""
        end = time.monotonic() + seconds
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            _send(self._process.stdin, request, content)
            answer: JsonObject = json.loads(self._process.stdout.readline())
            size = 3 * math.prod(answer.get("size", (0,)))
            pixels = self._process.stdout.read(size)
            if len(pixels) < size:
                raise ValueError("the pixels are cut off")
            return answer, pixels
        except (OSError, ValueError):  # The pipes of a killed process raise or end.
            if time.monotonic() < end:
                raise
            raise TimeoutError from None
        finally:
            timer.cancel()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(OSError):  # It may not have read its request.
                self._process.communicate()
            self._process = None


def _send(stream: IO[bytes], message: JsonObject, content: bytes = b"") -> None:
    """Write a line of JSON, and bytes: an attacker's pickle would run in the server."""
    stream.write(json.dumps(message).encode() + b"\n")
    stream.write(content)
    stream.flush()


def answer_requests() -> None:
    """Answer in JSON and pixels until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C leaves it to finish.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    limit_memory()
    sys.stdin.buffer.readline()
    _send(answers, {})
    for line in sys.stdin.buffer:
        request = json.loads(line)
        content = sys.stdin.buffer.read(request["bytes"])
        _end_after(2 + request["seconds"])
        options = request["options"]
        longest = options.pop("thumbnail", None)
        try:
            photo = load_here(content, request["name"], **options)
            if longest is not None:
                photo.thumbnail((longest, longest))
            _send(answers, {"size": photo.size, "info": photo.info}, photo.tobytes())
        except UserError as error:
            _send(answers, {"error": str(error)})
        _end_after(0)


def _end_after(seconds: float) -> None:
    """Have the system end this process, whose parent may be gone; 0: not. Not on Windows."""
    with suppress(AttributeError, OverflowError):
        signal.alarm(int(seconds))


def limit_memory() -> None:
    """Limit this process to `MEMORY` beyond what it has; not on Windows or macOS."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
