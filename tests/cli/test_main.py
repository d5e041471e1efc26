"""The command line as a whole: help, completion, errors, exit codes, signals, streams."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from samples import Output, Patch

from captioner.cli.main import SHELLS, build_parser, main
from captioner.cli.program import run_program
from captioner.errors import UserError
from captioner.training.loop import Interrupted

PARSER = build_parser()
(COMMANDS,) = (each.choices for each in PARSER._actions if isinstance(each.choices, dict))


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_in_the_help_are_valid(command: str) -> None:
    own = COMMANDS[command]
    text = re.sub(r"\\\n *", "", own.description)
    examples = [
        line.split("|")[-1] for line in text.splitlines() if f"captioner {command} " in line
    ]
    assert examples
    for example in examples:
        line = example.strip().split("  ")[0]  # Behind it may be a comment.
        arguments = line.split("captioner ", 1)[1].partition(" >")[0].split()
        assert PARSER.parse_args(arguments).run is own.get_default("run")


LINES = [
    ("captioner trans", {"translate"}),
    ("captioner --completion ", set(SHELLS)),
    ("captioner caption --ov", {"--overlay", "--overwrite", "--overwrite-descriptions"}),
    ("captioner caption a.jpg --xmp-for ", {"lightroom", "digikam", "darktable"}),
    ("captioner caption a.jpg --json ph", {"photo.jpg", "photos"}),
    ("captioner evaluate --bea", {"--beam"}),
    ("captioner maps --he", {"--help"}),
    ("captioner info ph", {"photos"}),  # A model is a folder.
]


@pytest.mark.parametrize("name", SHELLS)
def test_a_shell_completes(name: str, tmp_path: Path, monkeypatch: Patch, capsys: Output) -> None:
    """In bash; the others get their script."""
    monkeypatch.chdir(tmp_path)
    Path("photo.jpg").touch()
    Path("photos").mkdir()
    with pytest.raises(SystemExit):
        main(["--completion", name])
    script = capsys.readouterr().out
    assert "--overlay" in script
    assert "Captions photos." not in script  # The summary is shown, whole.
    if name != "bash":
        return
    bash = shutil.which("bash", path=os.defpath)
    if bash is None:
        pytest.skip("needs bash")
    for line, expected in LINES:
        words = line.split(" ")
        state = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}"
        call = f"_shtab_captioner captioner {shlex.join([words[-1], words[-2]])}"
        program = f"{script}\n{state}; {call}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        found = subprocess.run([bash, "-c", program], capture_output=True, text=True, check=True)
        assert {each.rstrip("/") for each in found.stdout.splitlines()} == expected


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("no such photo"), 2, "name: no such photo\n"),
        (MemoryError(), 2, "name: there is too little memory; smaller batches take less\n"),
        (OSError(36, "File name too long", "n" * 9), 2, "name: cannot use nnnnnnnnn: File name t"),
        (ValueError("embedded null byte"), 2, "name: a path has a NUL byte\n"),
        (KeyboardInterrupt(), 130, "name: interrupted\n"),
        (Interrupted("go on with --resume"), 130, "name: go on with --resume\n"),
    ],
)
def test_an_error_is_a_sentence(error: BaseException, code: int, said: str, capsys: Output) -> None:
    assert run_program(Mock(side_effect=error), "name") == code
    assert capsys.readouterr().err.startswith(said)
    with pytest.raises(OSError, match="of its own"):
        run_program(Mock(side_effect=OSError("of its own")))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("error", [ValueError, UserError])
def test_an_interrupt_that_a_library_turns_into_an_error(
    number: signal.Signals, error: type[Exception], monkeypatch: Patch, capsys: Output
) -> None:
    def load_weights(*_: object) -> None:
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt:
            raise error("could not determine the shape") from None

    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert run_program(load_weights, "name") == 130
    assert capsys.readouterr().err == "name: interrupted\n"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    for place in ("runs.read_recipe.read_any_recipe", "runs.run.train_run"):
        monkeypatch.setattr(f"captioner.{place}", Mock())
    monkeypatch.setattr("captioner.backends.export.add_graphs", load_weights)
    assert main(["train", "x.yaml"]) == 130
    assert capsys.readouterr().err == "captioner: interrupted\n"  # Not that it needs torch.


def test_output_to_a_file_is_utf_8() -> None:
    code = "import sys; from captioner.cli.program import run_program; "
    code += "sys.exit(run_program(lambda: print('möchte caf\\udce9.png'), 'name'))"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout.decode()) == (0, "möchte caf\\udce9.png\n")


STREAMS = [
    ("<&-", 0, ""),
    ("2>&-", 0, ""),
    ("2>/dev/full", 0, ""),
    (">&-", 0, ""),
    ("<&- 2>&- >&-", 0, ""),
    (">/dev/full", 2, "name: cannot write standard output: No space left on device\n"),
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize(("streams", "code", "said"), STREAMS)
def test_closed_streams_and_full_errors_end_no_run(
    streams: str, code: int, said: str, tmp_path: Path
) -> None:
    program = "\n".join(
        [
            "import sys",
            "from captioner.cli.program import report, run_program",
            "def main():",
            "    report('begins', 'name'); print('one', flush=True)",
            "    with open('done', 'w') as file:",  # Not under the number of a stream.
            "        file.write(sys.stdin.read() + str(file.fileno() > 2))",
            "sys.exit(run_program(main, 'name'))",
        ]
    )
    line = f'"$0" -c "$1" </dev/null 2>error {streams}'
    command = ["/bin/sh", "-c", line, sys.executable, program]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert done.returncode == code
    assert (tmp_path / "done").exists() is (code == 0)
    assert code or (tmp_path / "done").read_text() == "True"
    assert done.stdout == ("" if ">&-" in streams.replace("2>&-", "") or code else "one\n")
    expected = "" if "2>" in streams else f"name: begins\n{said}"
    assert (tmp_path / "error").read_text() == expected


def test_a_reader_that_has_gone_ends_a_run_quietly() -> None:
    code = "import sys; from captioner.cli.program import run_program; "
    code += "sys.exit(run_program(lambda: print(100_000 * 'far ')))"
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_control_characters_are_escaped_on_a_terminal() -> None:
    pty = pytest.importorskip("pty", reason="there are no terminals here")
    code = "import sys; from captioner.cli.program import run_program; "
    code += "sys.exit(run_program(lambda: print('caf\\u00e9\\x1b[2J\\a\\tone\\u202e\\rtwo')))"
    outer, inner = pty.openpty()
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    subprocess.run([sys.executable, "-c", code], stdout=inner, env=environment, check=True)
    os.close(inner)
    with open(outer, "rb", buffering=0) as terminal:
        said = terminal.read(1000).decode()
    assert said == "café\\x1b[2J\\x07\tone\\u202e\\rtwo\r\n"
