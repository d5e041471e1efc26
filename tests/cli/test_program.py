"""What surrounds every program: sentences for errors, signals, streams."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import Output, Patch

from captioner.cli.program import run_program
from captioner.errors import UserError
from captioner.training import Interrupted

ROOT = Path(__file__).resolve().parents[2]


def raising(error: BaseException) -> Callable[[], int]:
    def main() -> int:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("no such photo"), 2, "name: no such photo\n"),
        (KeyboardInterrupt(), 130, "name: interrupted\n"),
        (Interrupted("go on with --resume"), 130, "name: go on with --resume\n"),
    ],
)
def test_an_error_is_a_sentence(error: BaseException, code: int, said: str, capsys: Output) -> None:
    assert run_program(raising(error), "name") == code
    assert capsys.readouterr().err == said


def test_the_code_of_the_program_is_handed_on() -> None:
    assert run_program(lambda: 7) == 7
    assert run_program(lambda: None) == 0


@pytest.mark.parametrize("error", [ZeroDivisionError("of its own"), OSError("of its own")])
def test_a_mistake_of_the_program_itself_is_not_hidden(error: Exception) -> None:
    with pytest.raises(type(error), match="of its own"):
        run_program(raising(error))


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send SIGTERM to a handler")
def test_termination_lets_the_work_be_kept() -> None:
    def main() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    assert run_program(main) == 130
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("stream", "said"), [("stdout", "standard output is closed"), ("stderr", "")]
)
def test_a_stream_may_be_closed(stream: str, said: str, monkeypatch: Patch, capsys: Output) -> None:
    monkeypatch.setattr(sys, stream, None)
    assert run_program(raising(UserError("no such photo"))) == 2
    assert "".join(capsys.readouterr()) == (said and f"captioner: {said}\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("said", ["at the end", "at once"])
def test_output_that_cannot_be_written_is_a_sentence(said: str) -> None:
    code = f"""
import sys
sys.stdout.reconfigure(write_through={said == "at once"})
from captioner.cli.program import run_program
sys.exit(run_program(lambda: print("text"), "name"))
"""
    with open("/dev/full", "wb") as full:
        run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=full, stderr=-1)
    assert run.returncode == 2
    assert run.stderr.decode() == "name: cannot write standard output: No space left on device\n"


def test_a_name_that_is_not_text_can_be_printed(monkeypatch: Patch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8"))
    assert run_program(lambda: print("caf\udce9.png")) == 0
    assert written.getvalue() == b"caf\\udce9.png" + os.linesep.encode()


def test_a_terminal_keeps_its_encoding_and_a_file_gets_utf_8(monkeypatch: Patch) -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    for written, expected in ((io.BytesIO(), "möchte\n".encode()), (Terminal(), b"m\xf6chte\n")):
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
        assert run_program(lambda: print("möchte")) == 0
        assert written.getvalue() == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        [f"{ROOT}/scripts/caption_baselines.py", "absent.yaml", "--out", "x"],
        ["-m", "captioner", "info", "absent"],
    ],
)
def test_every_program_says_what_is_wrong_in_one_sentence(arguments: list[str]) -> None:
    run = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 2
    (sentence,) = run.stderr.splitlines()
    assert "absent" in sentence
