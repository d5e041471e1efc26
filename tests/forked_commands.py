"""Runs commands in forks of a program that has loaded torch, which takes seconds otherwise."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

STREAMS = {"stdin": "/dev/null", "stdout": "output", "stderr": "errors"}
"""The files of the streams 0 to 2."""

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


class Ended(NamedTuple):
    """Exit code, or minus the signal, seconds, and what was written to streams."""

    code: int
    seconds: float
    output: str
    errors: str


class Commands:
    """Asks the program to run commands in a folder."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self.process, self.folder = process, folder

    def run(self, arguments: Sequence[str], limit: float = 60, **job: Any) -> Ended:
        """Run one. limit: seconds, then SIGKILL or the job's signal."""
        job |= {"arguments": list(arguments), "limit": limit}
        assert self.process.stdin
        assert self.process.stdout
        paths = [self.folder / name for name in ("output", "errors")]
        for path in paths:
            path.unlink(missing_ok=True)
        print(json.dumps({"folder": str(self.folder), **job}), file=self.process.stdin, flush=True)
        code, seconds = json.loads(self.process.stdout.readline())
        return Ended(code, seconds, *(path.read_text(errors="replace") for path in paths))

    def kill(self, kills: int, command: Sequence[str], check: Callable[[], None]) -> None:
        """Kill a command that resumes at random moments, until so many kills are done.

        check: compares what it wrote with the first time's, and removes it; after every end.
        """
        whole = self.run(command)
        assert whole.code == 0, whole.errors
        check()
        draw, done = random.Random(0), 0
        while done < kills:
            number, moment = draw.choice(SIGNALS), draw.uniform(0.05, 0.8) * whole.seconds
            ended = self.run(command, limit=moment, signal=number)
            assert ended.code in (0, 130, -number), ended
            assert "Traceback" not in ended.errors, ended.errors
            done += ended.code != 0
            if ended.code != 0 and done == kills:
                ended = self.run(command)
            if ended.code == 0:
                check()


@contextmanager
def forked_commands(folder: Path) -> Iterator[Commands]:
    """Yields what runs commands."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, __file__], **pipes) as process:
        yield Commands(process, folder)
        assert process.stdin
        process.stdin.close()


def _run_here(job: dict[str, Any]) -> None:
    """Run a command in this process, and end it."""
    os.chdir(job["folder"])
    for number, (name, path) in enumerate(STREAMS.items()):
        flags = os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY
        os.dup2(os.open(path, flags, 0o600), number)
        setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    from captioner.cli.main import main

    code = 70
    try:
        code = main(job["arguments"])
    except SystemExit as stop:
        code = int(stop.code or 0)
    except KeyboardInterrupt:  # Before the program begins.
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _serve() -> None:
    import captioner.backends.export
    import captioner.cli.main
    import captioner.loading
    import captioner.outputs.outputs
    import captioner.runs.read_recipe
    import captioner.runs.run
    import captioner.translate.translator

    # Exporting starts threads of its own, and takes ten seconds; tests/onnx does.
    captioner.backends.export.add_graphs = lambda folder: None
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        job, begun = json.loads(line), time.monotonic()
        child = os.fork()
        if child == 0:
            _run_here(job)
        is_stopped = False
        while (status := os.waitpid(child, os.WNOHANG))[0] == 0:
            time.sleep(0.002)
            late = time.monotonic() - begun - job["limit"]
            if late > 0 and not is_stopped:
                is_stopped = True
                os.kill(child, job.get("signal", signal.SIGKILL))
            elif late > 20:
                os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(status[1])
        print(json.dumps([code, time.monotonic() - begun]), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
