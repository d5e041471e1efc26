"""`captioner --completion`: the scripts, run by the shells they are for."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from samples import Output, Patch

from captioner.cli.main import SHELLS, main

LINES = [
    ("captioner trans", {"translate"}),
    ("captioner --comp", {"--completion"}),
    ("captioner --completion ", set(SHELLS)),
    ("captioner caption --ov", {"--overlay", "--overwrite"}),
    ("captioner caption --precision f", {"float32"}),
    ("captioner caption a.jpg --xmp-for ", {"lightroom", "digikam", "darktable"}),
    ("captioner caption ph", {"photo.jpg", "photos"}),
    ("captioner caption a.jpg --json ph", {"photo.jpg", "photos"}),
    ("captioner info ph", {"photos"}),  # A model is a folder.
    ("captioner maps default --bea", {"--beam"}),  # Its help does not explain the search.
]


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: Patch, capsys: Output) -> Path:
    """A folder with the scripts, two names to complete, and nothing else."""
    for shell in SHELLS:
        with pytest.raises(SystemExit) as stop:
            main(["--completion", shell])
        assert stop.value.code == 0
        (tmp_path / f"script.{shell}").write_text(capsys.readouterr().out)
    (tmp_path / "photo.jpg").touch()
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(shell: str, *arguments: str) -> list[str]:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(("line", "expected"), LINES)
@pytest.mark.usefixtures("scripts")
def test_bash_completes(line: str, expected: set[str]) -> None:
    words = line.split(" ")
    state = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}"
    call = f"_shtab_captioner captioner {shlex.join([words[-1], words[-2]])}"
    program = f"source script.bash; {state}; {call}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    assert {name.rstrip("/") for name in run("bash", "-c", program)} == expected


@pytest.mark.parametrize(("line", "expected"), LINES)
@pytest.mark.usefixtures("scripts")
def test_fish_completes(line: str, expected: set[str]) -> None:
    found = run("fish", "-N", "-c", f"source script.fish; complete -C '{line}'")
    assert {each.partition("\t")[0].rstrip("/") for each in found} == expected


@pytest.mark.usefixtures("scripts")
def test_zsh_takes_the_script() -> None:
    program = (
        'autoload -U compinit; compinit -u -D; eval "$(<script.zsh)"; print $_comps[captioner]'
    )
    assert run("zsh", "-f", "-c", program) == ["_shtab_captioner"]
