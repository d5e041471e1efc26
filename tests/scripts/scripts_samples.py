"""What the tests of the scripts share: how a script is run."""

import io
import runpy
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, program: str, *arguments: str) -> str:
    """What a script prints that runs in a folder, in this process; it must end well."""
    printed, errors = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(errors):
        patch.chdir(folder)
        patch.setattr(sys, "argv", [program, *arguments])
        patch.syspath_prepend(str(Path(program).parent))
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(program, run_name="__main__")
    assert ended.value.code == 0, errors.getvalue()
    return printed.getvalue()
