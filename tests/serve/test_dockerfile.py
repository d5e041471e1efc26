"""The steps of the Dockerfile, run without Docker: in a folder, with an environment of its own."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import httpx
import pytest
from serve_samples import ROOT, started

from captioner import load
from captioner.demo import DEMO_PHOTO


def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    parts = (line.partition(" ") for line in lines if line and not line.startswith("#"))
    return [(instruction, rest.strip()) for instruction, _, rest in parts]


def test_it_does_not_run_as_root_and_opens_the_port_of_the_command() -> None:
    found = dict(steps())
    assert found["USER"] not in ("root", "0")
    assert found["EXPOSE"] == "8765"  # The default of --port.
    assert ":8765/" in found["HEALTHCHECK"]


@pytest.mark.slow
def test_its_steps_make_a_server_that_captions(tmp_path: Path) -> None:
    """The new environment finds the dependencies in that of the tests: no index is asked."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PATH": f"{venv}/bin:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # The value of `build_isolation`.
        "CAPTIONER_TOKEN": "of-the-container",
    }
    folder = tmp_path
    for instruction, rest in steps():
        if instruction == "WORKDIR":
            folder = tmp_path / rest.strip("/")
            folder.mkdir(parents=True, exist_ok=True)
        elif instruction == "COPY":
            *sources, target = rest.split()
            for source in sources:
                if (ROOT / source).is_dir():
                    shutil.copytree(ROOT / source, folder / target)
                else:
                    shutil.copy(ROOT / source, folder / target)
        elif instruction == "RUN" and rest.startswith("pip "):
            install = [str(venv / "bin/python"), "-m", *shlex.split(rest)]
            subprocess.run(install, cwd=folder, env=environment, check=True)
    words = dict(steps())
    command = [*json.loads(words["ENTRYPOINT"]), *json.loads(words["CMD"]), "--port", "0"]
    program = str(venv / "bin" / command[0])
    health = json.loads(words["HEALTHCHECK"].removeprefix("CMD"))
    with started([program, *command[1:]], environment, folder) as server:
        health = [part.replace(":8765/", f":{server.port}/") for part in health]
        assert subprocess.run(health, env=environment).returncode == 0
        address = f"http://127.0.0.1:{server.port}/api/caption"
        sent = {"photo": DEMO_PHOTO.read_bytes()}
        assert httpx.post(address, files=sent).status_code == 401
        bearer = {"Authorization": "Bearer of-the-container"}
        answer = httpx.post(address, files=sent, headers=bearer, timeout=None).json()
        assert answer["photos"][0]["captions"][0]["caption"] == load().caption(DEMO_PHOTO).text
        server.process.terminate()
        assert server.process.wait() == 0
    assert subprocess.run(health, env=environment, stderr=subprocess.DEVNULL).returncode != 0
