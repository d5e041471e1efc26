"""The command line as a whole: help, completion, errors, exit codes, signals, streams."""

import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import Output, Patch

from captioner.cli.main import SHELLS, build_parser, main
from captioner.cli.program import run_program
from captioner.errors import UserError
from captioner.training.loop import Interrupted

COMMANDS = (
    *("caption", "translate", "serve", "train", "evaluate", "score", "maps"),
    *("evaluate-translator", "score-translations", "calibrate", "features", "info", "push"),
)


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_help_teaches(arguments: list[str], capsys: Output) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert all(command in text for command in COMMANDS)
    assert "captioner caption --demo" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_on_a_screen(command: str, monkeypatch: Patch, capsys: Output) -> None:
    columns, rows = 100, 58 if command == "caption" else 45
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert len(lines) <= rows
    assert max(map(len, lines)) <= columns
    assert "\noptions:" not in text  # Options are grouped by what they are for.
    if command in ("evaluate", "maps", "evaluate-translator"):
        other = "translate" if command == "evaluate-translator" else "caption"
        assert f"see captioner {other} --help" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_in_the_help_are_valid(command: str) -> None:
    parser = build_parser()
    (commands,) = (each for each in parser._actions if isinstance(each.choices, dict))
    own = commands.choices[command]
    text = re.sub(r"\\\n *", "", own.description)
    examples = [
        line.split("|")[-1] for line in text.splitlines() if f"captioner {command} " in line
    ]
    assert examples
    for example in examples:
        line = example.strip().split("  ")[0]  # Behind it may be a comment.
        arguments = line.split("captioner ", 1)[1].partition(" >")[0].split()
        assert parser.parse_args(arguments).run is own.get_default("run")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("captoin a.jpg", "did you mean 'caption'?"),
        ("README.md", "did you mean 'captioner caption README.md'?"),
        ("caption a.jpg --bean 3", "unrecognized arguments: --bean 3; did you mean '--beam'?"),
        ("caption -demo", "unrecognized arguments: -demo; did you mean '--demo'?"),
        ("caption --xmp-for digicam", "did you mean 'digikam'?"),
        ("caption a.jpg -q", "unrecognized arguments: -q"),
        ("caption a.jpg --beam", "argument --beam: expected one argument"),
        ("translate a.txt b.txt", "unrecognized arguments: b.txt"),
        ("evaluate M --format csv", "'csv' is not one of coco"),
        ("translate --language it", "'it' is not one of de, fr"),
    ],
)
def test_a_mistyped_command_or_option_is_suggested_after_the_usage(
    arguments: str, said: str, capsys: Output, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("README.md").touch()
    with pytest.raises(SystemExit) as stop:
        main(arguments.split())
    assert stop.value.code == 2
    usage, error = capsys.readouterr().err.splitlines()
    command = arguments.split()[0]
    shown = command if command in COMMANDS else "COMMAND"
    assert usage.startswith(f"usage: captioner {shown} ")
    assert said in error


@pytest.mark.slow
def test_threads_of_torch_wait_without_spinning_unless_told_otherwise() -> None:
    program = "import os, sys; from captioner.cli.main import main\n"
    program += "assert 'torch' not in sys.modules; main(['info', 'missing'])\n"
    program += "import torch; print(os.environ['OMP_WAIT_POLICY'])"
    kept = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    for given, expected in (({}, "PASSIVE\n"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE\n")):
        command, environment = [sys.executable, "-c", program], {**kept, **given}
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert (run.stdout, len(run.stderr.splitlines())) == (expected, 1)


LINES = [
    ("captioner trans", {"translate"}),
    ("captioner --comp", {"--completion"}),
    ("captioner --completion ", set(SHELLS)),
    ("captioner caption --ov", {"--overlay", "--overwrite"}),
    ("captioner caption a.jpg --xmp-for ", {"lightroom", "digikam", "darktable"}),
    ("captioner caption ph", {"photo.jpg", "photos"}),
    ("captioner caption a.jpg --json ph", {"photo.jpg", "photos"}),
    ("captioner info ph", {"photos"}),  # A model is a folder.
    ("captioner maps default --bea", {"--beam"}),  # Its help does not explain the search.
]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> Callable[..., list[str]]:
    """Runs a shell where its script is, and two names to complete; gives the lines it prints."""
    monkeypatch.chdir(tmp_path)
    Path("photo.jpg").touch()
    Path("photos").mkdir()
    for name in SHELLS:
        with pytest.raises(SystemExit):
            main(["--completion", name])
        Path(f"script.{name}").write_text(capsys.readouterr().out)

    def run(name: str, *arguments: str) -> list[str]:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
        done = subprocess.run([name, *arguments], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    return run


def test_bash_completes(shell: Callable[..., list[str]]) -> None:
    for line, expected in LINES:
        words = line.split(" ")
        state = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}"
        call = f"_shtab_captioner captioner {shlex.join([words[-1], words[-2]])}"
        program = f"source script.bash; {state}; {call}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        assert {name.rstrip("/") for name in shell("bash", "-c", program)} == expected


def test_zsh_takes_the_script(shell: Callable[..., list[str]]) -> None:
    program = (
        'autoload -U compinit; compinit -u -D; eval "$(<script.zsh)"; print $_comps[captioner]'
    )
    assert shell("zsh", "-f", "-c", program) == ["_shtab_captioner"]


def test_fish_completes(shell: Callable[..., list[str]]) -> None:
    for line, expected in LINES:
        found = shell("fish", "-N", "-c", f"source script.fish; complete -C '{line}'")
        assert {each.partition("\t")[0].rstrip("/") for each in found} == expected


def raising(error: BaseException) -> Callable[[], int]:
    def program() -> int:
        raise error

    return program


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


def test_the_code_of_a_program_is_handed_on_and_its_own_mistakes_are_not_hidden() -> None:
    assert run_program(lambda: 7) == 7
    assert run_program(lambda: None) == 0
    for error in (ZeroDivisionError("of its own"), OSError("of its own")):
        with pytest.raises(type(error), match="of its own"):
            run_program(raising(error))


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot send SIGTERM to a handler")
def test_termination_lets_the_work_be_kept() -> None:
    def program() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()

    before = signal.getsignal(signal.SIGTERM)
    assert run_program(program) == 130
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_output_that_cannot_be_written_is_a_sentence() -> None:
    code = "import sys; from captioner.cli.program import run_program; "
    code += "sys.exit(run_program(lambda: print('text'), 'name'))"
    with open("/dev/full", "wb") as full:
        run = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE)
    assert run.returncode == 2
    assert run.stderr.decode() == "name: cannot write standard output: No space left on device\n"


def test_a_terminal_keeps_its_encoding_and_a_file_gets_utf_8(monkeypatch: Patch) -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    for written, expected in (
        (io.BytesIO(), "möchte caf\\udce9.png\n".encode()),
        (Terminal(), b"m\xf6chte caf\\udce9.png\n"),
    ):
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
        assert run_program(lambda: print("möchte caf\udce9.png")) == 0
        assert written.getvalue().replace(b"\r", b"") == expected
