"""Fixtures that several rooms' tests share."""

import multiprocessing.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

# One thread a test process: pytest-xdist starts a process for each core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
from hypothesis import HealthCheck, settings

from captioner.cli.main import main

HAS_TORCH = find_spec("torch") is not None

# No time limit on an example: a busy machine is no failure.
PATIENT = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", PATIENT, max_examples=20)
settings.register_profile("thorough", PATIENT, max_examples=60)
settings.load_profile("quick")

# A shell has what it runs in the background ignore Ctrl-C, and programs started from there inherit
# that; the tests of Ctrl-C need it to work.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# By marker, which is also the program's name: where it comes from.
PROGRAMS = {
    "exiftool": "Debian's libimage-exiftool-perl",
    "chromium": "Debian's chromium",
    "java": "a Java runtime",
}


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Skip the tests that are marked as needing a program which is not there."""
    missing = {name: source for name, source in PROGRAMS.items() if shutil.which(name) is None}
    for item in items:
        for mark in item.iter_markers():
            if mark.name in missing:
                reason = f"needs {mark.name} ({missing[mark.name]})"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(autouse=True, scope="session")
def no_leftovers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Put what libraries keep, in the temporary folder and the user's, where it is removed."""
    tmp_path_factory.getbasetemp()  # That of pytest stays, with the folders of the last tests.
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "IPYTHONDIR"):
            patch.setenv(name, folder)
        patch.setattr(tempfile, "tempdir", folder)
        yield
        multiprocessing.util._exit_function()  # It removes a folder of its own in there.


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Without torch, leave out the tests whose imports, or those of their fixtures, need it."""
    file = collection_path / "conftest.py" if collection_path.is_dir() else collection_path
    is_code = file.suffix == ".py" and file.is_file()
    if HAS_TORCH or file == Path(__file__) or not is_code:
        return None
    sys.path.insert(0, str(collection_path.parent))
    try:
        spec = spec_from_file_location("probe", file)
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(module_from_spec(spec))
    except ImportError as error:  # A folder of tests may have the name of a missing package.
        if (error.name or "").startswith("captioner"):
            raise
        return True
    finally:
        sys.path.remove(str(collection_path.parent))
    return None


@pytest.fixture(autouse=True)
def no_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training in this process writes no graphs, which takes ten seconds: tests/onnx does."""
    with suppress(ImportError):  # Without torch nothing is trained.
        monkeypatch.setattr("captioner.backends.export.add_graphs", lambda folder: None)


@pytest.fixture
def tiny_captioner() -> Any:
    from samples import make_captioner

    return make_captioner()


@pytest.fixture
def tiny_model(tmp_path: Path, tiny_captioner: Any) -> Path:
    """The folder of the tiny captioner."""
    from captioner.caption.folder import save_model

    folder = tmp_path / "tiny-model"
    save_model(tiny_captioner, folder)
    return folder


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the model `tiny-model` and the photos a.png and b.png."""
    from samples import save_photo

    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("a.png", "b.png")):
        save_photo(tmp_path / name, number)
    return tmp_path


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the program on what it refuses with exit code 2; gives its one sentence."""

    def run(arguments: Sequence[str]) -> str:
        capsys.readouterr()
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        (sentence,) = printed.err.splitlines()
        assert sentence.startswith("captioner: ")
        return sentence

    return run
