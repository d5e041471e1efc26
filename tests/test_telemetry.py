"""Nothing leaves the machine: onnxruntime's telemetry is off wherever captioner imports it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from photo_samples import DEMO_CAPTION

from captioner.model_folders import DEMO_PHOTO

ROOT = Path(__file__).resolve().parents[1]
CAPTION = f"import captioner; print(captioner.load().caption({str(DEMO_PHOTO)!r}))"


def run(code: str, home: Path, **more: str) -> str:
    """What a program prints whose home is a folder of its own; on standard error, nothing."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ORT_")}
    places = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    environment = {**kept, **places, **more}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_captioning_leaves_no_file_at_home(tmp_path: Path) -> None:
    assert run(CAPTION, tmp_path) == f"{DEMO_CAPTION}\n"
    assert list(tmp_path.rglob("*")) == []
    run(CAPTION, tmp_path / "none")  # Where nothing can be written, nothing is said about it.


@pytest.mark.slow
def test_captioning_looks_up_no_name(tmp_path: Path) -> None:
    """Telemetry asks the proxy for its host within ten seconds, which is seen without a network."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        address = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        run(f"{CAPTION}\nimport time; time.sleep(20)", tmp_path, https_proxy=address)
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_a_value_of_ones_own_is_kept(tmp_path: Path) -> None:
    code = "import os, captioner; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    assert run(code, tmp_path) == "1\n"
    assert run(code, tmp_path, ORT_DISABLE_TELEMETRY="0") == "0\n"
