"""A process of exiftool, which reads and writes one photo after the other."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from ctypes import CDLL
from functools import partial
from pathlib import Path
from threading import Lock, Timer

from captioner.errors import UserError

_SECONDS = 60  # For a photo; one of a gigabyte has 17 minutes more.
_BYTES_A_SECOND = 1e6
_READY = "{ready}"  # What exiftool prints after each photo.


def has_exiftool() -> bool:
    """Whether exiftool is there."""
    return shutil.which("exiftool") is not None


class Exiftool:
    """Runs one command after the other; starts a new process if the last died. Threads share it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = Lock()

    def check(self) -> None:
        """Raise `UserError` unless exiftool is there."""
        if not has_exiftool():
            where = "https://exiftool.org or, on Debian, apt install libimage-exiftool-perl"
            raise UserError(f"--embed needs exiftool; see {where}")

    def run(self, photo: Path, *options: str) -> str:
        """What exiftool prints about a photo, without warnings; or why it prints nothing."""
        command = ["-q", "-q", *options, f"{photo}", "-echo3", _READY, "-execute"]
        if any("\n" in argument for argument in command):
            return "its name has a line break"
        with self._lock:
            try:
                return self._answer(command, _SECONDS + photo.stat().st_size / _BYTES_A_SECOND)
            except BaseException:  # After Ctrl-C, its answer would be taken for the next photo's.
                self.close()
                raise

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with suppress(OSError), self._process:  # It may hold a command that nobody reads.
                self._process.kill()
        self._process = None

    def _answer(self, command: list[str], seconds: float) -> str:
        if self._process is None:
            self._process = subprocess.Popen(
                ["exiftool", "-stay_open", "True", "-@", "-"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="surrogateescape",
                start_new_session=True,  # Ctrl-C is for captioner.
                preexec_fn=_end_with_parent(),
            )
        exiftool, lines = self._process, list[str]()
        limit = Timer(seconds, exiftool.kill)
        limit.daemon = True  # An interrupted run does not wait for it.
        limit.start()
        try:
            with suppress(OSError):  # One that died prints nothing either.
                print(*command, sep="\n", file=exiftool.stdin, flush=True)
            for line in exiftool.stdout or ():
                if line == f"{_READY}\n":
                    return "".join(lines).strip()
                lines.append(line)
            is_late = limit.finished.is_set()
        finally:
            limit.cancel()
        self.close()
        return f"exiftool took more than {seconds:.0f} seconds" if is_late else "exiftool died"


def _end_with_parent() -> Callable[[], object] | None:
    """On Linux, has exiftool killed with captioner: at the end of its input it waits for more."""
    if sys.platform != "linux":
        return None
    return partial(CDLL(None).prctl, 1, signal.SIGKILL)  # PR_SET_PDEATHSIG
