"""Decodes untrusted photos in other processes, with limits of time and memory.

A crafted file holds or crashes its decoder: a process can be killed, a thread cannot.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

from PIL import Image

from captioner.errors import UserError
from captioner.outcomes import Budget
from captioner.vision.images import decode_photo, original_size
from captioner.vision.pixels import HELD, ORIGINAL_SIZE

MEMORY = HELD + 100_000_000  # Bytes that a process may allocate, where the system can limit it.
SECONDS = 20.0  # Default limit for a photo.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from captioner.vision.decoding_process import answer_requests; answer_requests()"
)

BUDGET = Budget(HELD)
"""Bytes of the photos that are decoded at a time, in this process and in its decoders."""


@cache
def shared_pool(process_id: int) -> DecodingPool:
    """The pool for the photos that `load_image` does not decode itself; a fork has its own."""
    return DecodingPool(min(4, max(1, (os.cpu_count() or 1) // 2)))


class DecodingPool:
    """Processes that decode photos, each for one thread at a time. seconds: limit for a photo."""

    seconds = SECONDS

    def __init__(self, processes: int, seconds: float | None = None) -> None:
        if seconds is not None:
            self.seconds = seconds
        self._decoders = [_Decoder() for _ in range(processes)]
        self._idle: queue.SimpleQueue[_Decoder] = queue.SimpleQueue()
        for decoder in self._decoders:
            self._idle.put(decoder)

    def load(self, source: bytes | str, name: str, **options: int | None) -> Image.Image:
        """Load a photo as `load_image` does, in an idle process, which is waited for.

        source: its content or path. thumbnail: the longest side, an option beside those of
            `load_image`.
        """
        decoder = self._idle.get()
        try:
            answer, pixels = decoder.ask(source, {"name": name, **options}, self.seconds)
        except TimeoutError:
            limit = f"{self.seconds:g} s, the limit (--decoding-seconds)"
            reason = f"the decoder took more than {limit}"
            raise UserError(f"{name} cannot be decoded: {reason}") from None
        except (OSError, EOFError, ValueError):
            raise UserError(f"{name} cannot be decoded: the decoder crashed") from None
        finally:
            self._idle.put(decoder)
        if "error" in answer:
            raise UserError(answer["error"])
        photo = Image.frombytes("RGB", tuple(answer["size"]), pixels)
        photo.info[ORIGINAL_SIZE] = tuple(answer["original_size"])
        return photo

    def close(self) -> None:
        """End the processes, once they are idle."""
        for _ in self._decoders:
            self._idle.get().close()


class _Decoder:
    """A process that starts for its first photo, and again when it has ended."""

    _process: subprocess.Popen[bytes] | None = None
    _is_late = False

    def ask(
        self, source: bytes | str, options: dict[str, Any], seconds: float
    ) -> tuple[Any, bytes]:
        """The answer and the pixels. Raises `TimeoutError`, and other errors after a crash."""
        try:
            return self._ask(source, {**options, "seconds": seconds}, seconds)
        except BaseException:
            self.close()
            if self._is_late:
                raise TimeoutError from None
            raise

    def _ask(
        self, source: bytes | str, options: dict[str, Any], seconds: float
    ) -> tuple[Any, bytes]:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        path = source if isinstance(source, str) else None
        _send(process.stdin, json.dumps({**options, "path": path}).encode())
        _send(process.stdin, b"" if isinstance(source, str) else source)
        answer = json.loads(self._receive(process.stdout, seconds))
        if "bytes" not in answer:
            return answer, _receive(process.stdout)
        with BUDGET.hold(answer["bytes"]):
            _send(process.stdin, b"decode")
            answer = json.loads(self._receive(process.stdout, seconds))
            return answer, _receive(process.stdout)

    def _start(self) -> subprocess.Popen[bytes]:
        # Not of `multiprocessing`, which imports the user's program again. Isolated, it imports
        # nothing from the current folder.
        command = [sys.executable, "-I", "-c", _PROGRAM, json.dumps(sys.path)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe)
        assert self._process.stdout is not None
        _receive(self._process.stdout)  # Its start does not count.
        return self._process

    def _receive(self, stream: IO[bytes], seconds: float) -> bytes:
        """A message, for which the process is killed if it takes longer."""
        self._is_late = False
        timer = threading.Timer(seconds, self._kill)
        timer.daemon = True
        timer.start()
        try:
            return _receive(stream)
        finally:
            timer.cancel()

    def _kill(self) -> None:
        self._is_late = True
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(OSError):  # What it did not read.
                self._process.communicate()
            self._process = None


def _send(stream: IO[bytes], message: bytes) -> None:
    stream.write(struct.pack(">Q", len(message)))
    stream.write(message)
    stream.flush()


def _receive(stream: IO[bytes]) -> bytes:
    size = stream.read(8)
    if len(size) < 8:
        raise EOFError
    (count,) = struct.unpack(">Q", size)
    message = stream.read(count)
    if len(message) < count:
        raise EOFError
    return message


def answer_requests() -> None:
    """Answer in JSON and pixels: an attacker's pickle would run in the server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C leaves it to finish.
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)  # Decoders print about damaged files.
    limit_memory()
    _send(answers, b"ready")

    def permit(held: int) -> None:
        """Wait until so many bytes may be held."""
        _set_alarm(0)
        _send(answers, json.dumps({"bytes": held}).encode())
        _receive(requests)
        _set_alarm(seconds)

    with suppress(EOFError):
        while True:
            options = json.loads(_receive(requests))
            content = _receive(requests)
            seconds, longest = options.pop("seconds"), options.pop("thumbnail", None)
            path, pixels = options.pop("path"), b""
            _set_alarm(seconds)
            try:
                photo = decode_photo(content if path is None else path, permit=permit, **options)
                if longest is not None:
                    photo.thumbnail((longest, longest))
                pixels = photo.tobytes()
                answer: Any = {"size": photo.size, "original_size": original_size(photo)}
            except UserError as error:
                answer = {"error": str(error)}
            _set_alarm(0)
            _send(answers, json.dumps(answer).encode())
            _send(answers, pixels)


def _set_alarm(seconds: float) -> None:
    """End this process then, also if nobody is left to kill it; not on Windows."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds + 1 if seconds else 0)


def limit_memory() -> None:
    """Limit this process to `MEMORY` beyond what it has; not on Windows or macOS."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
