"""Decodes untrusted photos in other processes, with limits of time and memory.

A crafted file holds its decoder for minutes, or crashes it. A process can be killed, a
thread cannot.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from PIL import Image

from captioner.errors import UserError
from captioner.vision.images import load_image, original_size, with_original_size

MEMORY = 2 * 1024**3
"""Bytes that a process may allocate, where the system can limit it (Linux)."""


class DecodingPool:
    """Processes that decode photos, each for one thread at a time.

    seconds: limit for a photo.
    """

    def __init__(self, processes: int, seconds: float) -> None:
        self._processes = [_DecodingProcess(seconds) for _ in range(processes)]
        self._idle: queue.SimpleQueue[_DecodingProcess] = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    def load(self, content: bytes, name: str, **options: int) -> Image.Image:
        """Load a photo as `load_image` does, in an idle process, which is waited for.

        Raises `UserError` also for a photo that takes too long or crashes its decoder.
        """
        process = self._idle.get()
        try:
            return process.load(content, name, options)
        finally:
            self._idle.put(process)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.close()


class _DecodingProcess:
    """One process, started for the first photo and again when it has ended."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._process: multiprocessing.process.BaseProcess | None = None

    def load(self, content: bytes, name: str, options: dict[str, int]) -> Image.Image:
        try:
            if self._process is None:
                self._start()
            self._pipe.send((content, {"name": name, **options}))
            if not self._pipe.poll(self._seconds):
                raise TimeoutError
            answer = json.loads(self._pipe.recv_bytes())
            pixels = self._pipe.recv_bytes()
        except Exception as error:
            self.close()
            is_late = isinstance(error, TimeoutError)
            reason = f"took more than {self._seconds:g} s" if is_late else "crashed"
            raise UserError(f"{name} cannot be decoded: the decoder {reason}") from None
        if "error" in answer:
            raise UserError(answer["error"])
        photo = Image.frombytes("RGB", tuple(answer["size"]), pixels)
        return with_original_size(photo, tuple(answer["original_size"]))

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other_end = context.Pipe()
        self._process = context.Process(target=_decode_photos, args=(other_end,), daemon=True)
        self._process.start()
        other_end.close()
        self._pipe.recv_bytes()  # Its start does not count.


def _decode_photos(pipe: Connection) -> None:
    """Answer requests until the other end is closed.

    Answers are JSON and pixels: an attacker's pickle would run in the server.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C leaves it to finish.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)  # Decoders print about damaged files.
    limit_memory()
    pipe.send_bytes(b"ready")
    while True:
        try:
            content, options = pipe.recv()
        except EOFError:
            return
        pixels = b""
        try:
            photo = load_image(content, **options)
            pixels = photo.tobytes()
            answer: Any = {"size": photo.size, "original_size": original_size(photo)}
        except UserError as error:
            answer = {"error": str(error)}
        pipe.send_bytes(json.dumps(answer).encode())
        pipe.send_bytes(pixels)


def limit_memory() -> None:
    """Limit this process to `MEMORY` beyond what it has; not on Windows or macOS."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):
        pass
