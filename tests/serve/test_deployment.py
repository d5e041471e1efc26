"""The Dockerfile, without Docker, and the proxy and the service of docs/serving.md."""

import configparser
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import httpx
import pytest
from serve_samples import ROOT, files, running, started

from captioner import load
from captioner.cli.main import build_parser
from captioner.demo import DEMO_PHOTO


def block(language: str) -> str:
    page = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    return str(found)


def test_the_service_starts_a_command_that_there_is() -> None:
    service = configparser.ConfigParser()
    service.optionxform = str  # type: ignore[assignment, method-assign]
    service.read_string(block("ini"))
    program, *words = shlex.split(service["Service"]["ExecStart"])
    assert Path(program).name == "captioner"
    assert build_parser().parse_args(words).public_url == "https://photos.example.org/captions/"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs Debian's nginx-light")
def test_nginx_leads_to_the_page(tiny_model: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port = int(opened.getsockname()[1])
    public = ("--public-url", "https://photos.example.org/captions/")
    with running(tiny_model, "--no-translator", "--access-log", *public) as server:
        section = block("nginx").replace("listen 80;", f"listen 127.0.0.1:{port};")
        section = section.replace("127.0.0.1:8765", f"127.0.0.1:{server.port}")
        places = "".join(
            f"{name}_temp_path {tmp_path}/{name};\n"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        config = tmp_path / "nginx.conf"
        user = "user root; " if os.getuid() == 0 else ""  # Otherwise nobody, who owns no folder.
        config.write_text(
            f"{user}daemon off; pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}}\n"
            f"http {{ access_log off; {places} {section} }}"
        )
        proxy = subprocess.Popen(["nginx", "-e", str(tmp_path / "log"), "-c", str(config)])
        headers = {"Host": "photos.example.org", "Origin": "https://photos.example.org"}
        transport = httpx.HTTPTransport(retries=10)  # Until it listens.
        address = f"http://127.0.0.1:{port}/captions"
        try:
            with httpx.Client(base_url=address, headers=headers, transport=transport) as client:
                assert "<title>captioner</title>" in client.get("/").text
                answer = client.post("/api/caption", files=files(0))
                assert answer.json()["photos"][0]["captions"]
                foreign = {"Origin": "https://evil.example"}
                refused = client.post("/api/caption", files=files(0), headers=foreign)
                assert refused.status_code == 403
        finally:
            proxy.terminate()
            proxy.wait()
        server.process.terminate()
        lines = server.process.communicate(timeout=60)[1].splitlines()
    requests = ["GET / ", "POST /api/caption ", "POST /api/caption "]
    assert all(part in line for part, line in zip(requests, lines, strict=True))


@pytest.mark.slow
def test_the_steps_of_the_dockerfile_make_a_server_that_captions(tmp_path: Path) -> None:
    """In a new environment that finds the dependencies in that of the tests: no index is asked."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    words = dict(steps)
    assert words["USER"] not in ("root", "0")
    assert words["EXPOSE"] == "8765"  # The default of --port.
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        "PATH": f"{venv}/bin:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # The value of `build_isolation`.
        "CAPTIONER_TOKEN": "of-the-container",
    }
    for instruction, rest in steps:
        if instruction == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, tmp_path / target)
        elif instruction == "RUN" and rest.startswith("pip "):
            install = [str(venv / "bin/python"), "-m", *shlex.split(rest)]
            subprocess.run(install, cwd=tmp_path, env=environment, check=True)
    command = [*json.loads(words["ENTRYPOINT"]), *json.loads(words["CMD"]), "--port", "0"]
    command[0] = str(venv / "bin" / command[0])
    health = json.loads(words["HEALTHCHECK"].removeprefix("CMD"))
    with started(command, environment, tmp_path) as server:
        health = [part.replace(":8765/", f":{server.port}/") for part in health]
        assert subprocess.run(health, env=environment).returncode == 0
        address = f"http://127.0.0.1:{server.port}/api/caption"
        sent = {"photo": DEMO_PHOTO.read_bytes()}
        assert httpx.post(address, files=sent).status_code == 401
        bearer = {"Authorization": "Bearer of-the-container"}
        answer = httpx.post(address, files=sent, headers=bearer, timeout=None).json()
        assert answer["photos"][0]["captions"][0]["caption"] == load().caption(DEMO_PHOTO).text
