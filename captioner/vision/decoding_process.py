"""Decodes untrusted photos in other processes, with limits of time and memory.

A crafted file holds or crashes its decoder: a process can be killed, a thread cannot.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from PIL import Image

from captioner.errors import UserError
from captioner.vision.images import ORIGINAL_SIZE, load_image, original_size

MEMORY = 2 * 1024**3  # Bytes that a process may allocate, where the system can limit it.


class DecodingPool:
    """Processes that decode photos, each for one thread at a time. seconds: limit for a photo."""

    def __init__(self, processes: int, seconds: float) -> None:
        self.seconds = seconds
        self._decoders = [_Decoder() for _ in range(processes)]
        self._idle: queue.SimpleQueue[_Decoder] = queue.SimpleQueue()
        for decoder in self._decoders:
            self._idle.put(decoder)

    def load(self, content: bytes, name: str, **options: int) -> Image.Image:
        """Load a photo as `load_image` does, in an idle process, which is waited for."""
        decoder = self._idle.get()
        try:
            answer, pixels = decoder.ask(content, {"name": name, **options}, self.seconds)
        except Exception as error:
            decoder.close()
            is_late = isinstance(error, TimeoutError)
            reason = f"took more than {self.seconds:g} s" if is_late else "crashed"
            raise UserError(f"{name} cannot be decoded: the decoder {reason}") from None
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

    _process: Any = None

    def ask(self, content: bytes, options: dict[str, Any], seconds: float) -> tuple[Any, bytes]:
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, other_end = context.Pipe()
            process = context.Process(target=_decode_photos, args=(other_end,), daemon=True)
            process.start()
            self._process = process
            other_end.close()
            self._pipe.recv_bytes()  # Its start does not count.
        self._pipe.send((content, options))
        if not self._pipe.poll(seconds):
            raise TimeoutError
        return json.loads(self._pipe.recv_bytes()), self._pipe.recv_bytes()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def _decode_photos(pipe: Connection) -> None:
    """Answer in JSON and pixels: an attacker's pickle would run in the server."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C leaves it to finish.
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)  # Decoders print about damaged files.
    limit_memory()
    pipe.send_bytes(b"ready")
    with suppress(EOFError):
        while True:
            content, options = pipe.recv()
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
    with suppress(ImportError, OSError, ValueError):
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
