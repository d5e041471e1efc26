"""Decodes untrusted photos in other processes, with limits of time and memory.

A crafted file holds or crashes its decoder: a process can be killed, a thread cannot. The processes
of `multiprocessing`, and of libraries over it, would import the user's program again.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, BinaryIO

from PIL import Image

from captioner.errors import UserError
from captioner.files import JsonObject
from captioner.memory_limits import allowed_cores
from captioner.vision.formats import content_digest, load_here, original_size
from captioner.vision.pixels import BUDGET, HELD, ORIGINAL_SIZE

MEMORY = HELD + 100_000_000  # Bytes that a process may allocate, where the system can limit it.
SECONDS = 20.0  # Default limit for a photo.
_START = 2.0  # Least limit for the start of a process, which imports.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from captioner.vision.decoding_process import answer_requests; answer_requests()"
)
# An idle process gives its memory back to the system (glibc).
_ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_ARENA_MAX": "1"}

Message = JsonObject  # A request or an answer, as JSON.
Answer = tuple[Message, bytes]  # With a photo's pixels.


class DecodingPool:
    """Processes that decode photos, each for one thread at a time. seconds: limit for a photo."""

    def __init__(self, processes: int, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self._decoders = [_Decoder() for _ in range(processes)]
        self._idle: queue.SimpleQueue[_Decoder] = queue.SimpleQueue()
        for decoder in self._decoders:
            self._idle.put(decoder)

    def load(
        self, source: BinaryIO | str, name: str, seconds: float | None = None, **options: int | None
    ) -> Image.Image:
        """Load a photo as `load_image` does, in the next idle process.

        source: a file that is read from its beginning, or a path. seconds: in place of the pool's.
        thumbnail: the longest side, an option beside those of `load_image`.
        """
        answer, pixels = self._ask(source, {"name": name, **options}, seconds or self.seconds)
        photo = Image.frombytes("RGB", tuple(answer["size"]), pixels)
        photo.info[ORIGINAL_SIZE] = tuple(answer["original_size"])
        return photo

    def digest(self, source: BinaryIO, name: str, maximum_pixels: int) -> str:
        """`content_digest` of a photo's file; "" if it cannot be read."""
        options = {"name": name, "maximum_pixels": maximum_pixels, "digest": True}
        with suppress(UserError):
            answer, _ = self._ask(source, options, self.seconds)
            return str(answer["digest"])
        return ""

    def _ask(self, source: BinaryIO | str, options: Message, seconds: float) -> Answer:
        decoder = self._idle.get()
        try:
            answer, pixels = decoder.ask(source, options, seconds)
        except (OSError, ValueError) as error:
            reason = "crashed"
            if isinstance(error, TimeoutError):
                reason = f"took more than {seconds:g} s, the limit (--decoding-seconds)"
            name = options["name"]
            raise UserError(f"{name} cannot be decoded: the decoder {reason}") from None
        finally:
            self._idle.put(decoder)
        if "error" in answer:
            raise UserError(answer["error"])
        return answer, pixels

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

    def ask(self, source: BinaryIO | str, options: Message, seconds: float) -> Answer:
        """The answer and the pixels. Raises `TimeoutError`, and other errors after a crash."""
        content = b""
        if not isinstance(source, str):
            source.seek(0)
            content = source.read()
        path = source if isinstance(source, str) else None
        try:
            if self._process is None or self._process.poll() is not None:
                self._start()
                self._exchange({}, b"", max(seconds, _START))
            request = {"options": options, "path": path, "bytes": len(content)}
            answer, pixels = self._exchange(request, content, seconds)
            if "held" not in answer:
                return answer, pixels
            with BUDGET.hold(answer["held"]):
                return self._exchange({}, b"", seconds)
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        # Isolated, it imports nothing from the current folder.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # Not read: see `_end_with_reader`.
            env={**os.environ, **_ALLOCATION},
        )

    def _exchange(self, request: Message, content: bytes, seconds: float) -> Answer:
        """Send a request; returns its answer and pixels. Kills a process that takes longer."""
        end = time.monotonic() + seconds
        timer = threading.Timer(seconds, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            _send(self._process.stdin, request, content)
            answer: Message = json.loads(self._process.stdout.readline())
            width, height = answer.get("size", (0, 0))
            pixels = self._process.stdout.read(width * height * 3)
            if len(pixels) < width * height * 3:
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


def _send(stream: IO[bytes], message: Message, content: bytes = b"") -> None:
    """Write a line of JSON, and bytes: an attacker's pickle would run in the server."""
    stream.write(json.dumps(message).encode() + b"\n")
    stream.write(content)
    stream.flush()


def answer_requests() -> None:
    """Answer in JSON and pixels until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C leaves it to finish.
    _end_with_reader(os.dup(2))
    answers = os.fdopen(os.dup(1), "wb")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)  # Decoders print about damaged files.
    requests = queue.SimpleQueue[Message]()
    threading.Thread(target=_read_requests, args=(requests,), daemon=True).start()
    limit_memory()
    requests.get()
    _send(answers, {})

    @contextmanager
    def permit(held: int) -> Iterator[None]:
        _send(answers, {"held": held})
        requests.get()
        yield

    while True:
        request = requests.get()
        options = request["options"]
        longest = options.pop("thumbnail", None)
        is_digest = options.pop("digest", False)
        load = partial(load_here, hold=permit, **options)
        if is_digest:
            digest = content_digest(request["content"], options["name"], load)
            _send(answers, {"digest": digest})
            continue
        try:
            photo = load(source=request["path"] or request["content"])
        except UserError as error:
            _send(answers, {"error": str(error)})
            continue
        if longest is not None:
            photo.thumbnail((longest, longest))
        sizes = {"size": photo.size, "original_size": original_size(photo)}
        _send(answers, sizes, photo.tobytes())


def _read_requests(requests: queue.SimpleQueue[Message]) -> None:
    """Queue requests; end this process, also while it decodes, with its input: its parent's."""
    try:
        for line in sys.stdin.buffer:
            request = json.loads(line)
            request["content"] = sys.stdin.buffer.read(request.get("bytes", 0))
            requests.put(request)
    finally:
        os._exit(0)


def _end_with_reader(pipe: int) -> None:
    """Have the system end this process with the reader of a pipe, which is not written to.

    Linux only. The decoder of JPEG 2000 lets no other thread run, so none notices the end.
    """
    with suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_WRONLY | os.O_ASYNC)  # SIGIO, which kills.


def limit_memory() -> None:
    """Limit this process to `MEMORY` beyond what it has; not on Windows or macOS."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
