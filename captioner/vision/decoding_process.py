"""Decodes photos from strangers in other processes, with limits of time and memory.

A file may be made to hold its decoder for minutes, or to crash it. A process can be killed, a
thread cannot. When a process has started, it writes a line. A request is a line of JSON and the
file's content; an answer a line of JSON and the pixels.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time

from PIL import Image

from captioner.errors import UserError
from captioner.vision.images import load_image, original_size, with_original_size

MEMORY = 2 * 1024**3
"""Bytes that a process may allocate, where the system can limit it (Linux)."""

_PROGRAM = f"import sys; sys.path[:] = sys.argv[1:]; from {__name__} import main; main()"
"""Of a process. With `-m`, it would import files of the current folder."""


class DecodingPool:
    """Processes that decode photos, each for one thread at a time.

    seconds: limit for a photo.
    """

    def __init__(self, processes: int, seconds: float) -> None:
        self._processes = [_DecodingProcess(seconds) for _ in range(processes)]
        self._idle: queue.SimpleQueue[_DecodingProcess] = queue.SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    def load(
        self, content: bytes, name: str, maximum_pixels: int, sufficient_side: int
    ) -> Image.Image:
        """Load a photo in an idle process, which is waited for.

        Raises `UserError` as `load_image` does, and for a photo that takes too long or crashes its
        decoder.
        """
        options = {"maximum_pixels": maximum_pixels, "sufficient_side": sufficient_side}
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
        self._process: subprocess.Popen[bytes] | None = None

    def load(self, content: bytes, name: str, options: dict[str, int]) -> Image.Image:
        try:
            process = self._running()
        except OSError as error:
            raise UserError(
                f"{name} cannot be decoded: no process can be started ({error.strerror})"
            ) from None
        end = time.monotonic() + self._seconds
        timer = threading.Timer(self._seconds, process.kill)
        timer.start()
        try:
            request = {"bytes": len(content), "arguments": {"name": name, **options}}
            return _ask(process, json.dumps(request).encode() + b"\n" + content)
        except UserError:
            raise
        except Exception:
            is_late = time.monotonic() >= end
            self.close()  # It has ended, or the rest of its answer would spoil the next.
            reason = f"took more than {self._seconds:g} s" if is_late else "crashed"
            raise UserError(f"{name} cannot be decoded: the decoder {reason}") from None
        finally:
            timer.cancel()
            timer.join()
            if time.monotonic() >= end:  # It may be killed just after the answer.
                self.close()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()  # Closes the pipes.
            self._process = None

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, ready for a request. Raises `OSError` where none can be started."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # Decoders print about damaged files.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # Each reserves memory.
                start_new_session=True,  # Ctrl-C leaves it to finish; on Windows by the flag.
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
            )
            assert self._process.stdout is not None
            self._process.stdout.readline()  # Its start does not count.
        return self._process


def _ask(process: subprocess.Popen[bytes], request: bytes) -> Image.Image:
    """Send a request and read the photo. Raises `ValueError` for an answer that breaks off."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request)
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    if "error" in answer:
        raise UserError(answer["error"])
    width, height = answer["size"]
    pixels = process.stdout.read(width * height * 3)
    photo = Image.frombytes("RGB", (width, height), pixels)
    return with_original_size(photo, tuple(answer["original_size"]))


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, OSError, ValueError):  # Not on Windows or macOS.
        pass


def main() -> None:
    """Answer requests from standard input until it ends."""
    _limit_memory()
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Decoders may print.
    answers.write(b"ready\n")
    answers.flush()
    while line := requests.readline():
        request = json.loads(line)
        content = requests.read(request["bytes"])
        pixels = b""
        try:
            photo = load_image(content, **request["arguments"])
            pixels = photo.tobytes()
            answer: dict[str, object] = {
                "size": photo.size,
                "original_size": original_size(photo),
            }
        except UserError as error:
            answer = {"error": str(error)}
        answers.write(json.dumps(answer).encode() + b"\n" + pixels)
        answers.flush()
