"""The server as a process: addresses, signals, Docker's steps, proxy, service."""

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from samples import Patch, photo_bytes
from serve_samples import ROOT, files, running, started

from captioner import load
from captioner.cli.main import build_parser
from captioner.model_folders import DEMO_PHOTO
from captioner.serve.server import listen


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("repeated", [False, True])
def test_a_signal_ends_it_when_requests_under_way_are_answered_and_another_at_once(
    number: signal.Signals, repeated: bool, saved_models: tuple[Path, Path]
) -> None:
    head = b'--x\r\nContent-Disposition: form-data; name="photo"; filename="a.png"\r\n\r\n'
    content = head + photo_bytes() + b"\r\n--x--\r\n"
    with running(saved_models[0]) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as line:
            line.sendall(
                b"POST /api/caption HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                b"Content-Type: multipart/form-data; boundary=x\r\n"
                b"Content-Length: " + str(len(content)).encode() + b"\r\n\r\n"
            )
            assert line.recv(65536).startswith(b"HTTP/1.1 100 ")  # It waits for the content.
            server.process.send_signal(number)
            # It has understood when it takes no more.
            while True:
                try:
                    socket.create_connection(("127.0.0.1", server.port)).close()
                except ConnectionError:  # Refused, or reset where it came as the door closed.
                    break
            if repeated:
                server.process.send_signal(signal.SIGINT)
            else:
                line.sendall(content)
            answer = line.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 503 " if repeated else b"HTTP/1.1 200 ")
        assert (b"the server is ending" if repeated else b'"caption"') in answer
        out, errors = server.process.communicate()
    assert (server.process.returncode, out, errors) == (0, "captioner: ended\n", "")


def test_the_address_of_a_listener_is_that_of_the_page(monkeypatch: Patch) -> None:
    hosts = [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("0.0.0.0", "desk.example")]
    if Path("/proc/net/if_inet6").exists():  # Version 6 of the protocol.
        hosts.append(("::1", "[::1]"))
    monkeypatch.setattr("socket.gethostname", lambda: "desk.example")

    def refused(*arguments: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr("socket.socket.connect", refused)
    for host, shown in hosts:
        listener = listen(host, 0)
        with listener.socket:
            port = listener.socket.getsockname()[1]
        assert listener.address == f"http://{shown}:{port}/"
        assert shown in listener.names


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
                assert client.post("/api/caption", files=files(0)).status_code == 200
                foreign = {"Origin": "https://evil.example"}
                assert client.get("/api/model", headers=foreign).status_code == 403
        finally:
            proxy.terminate()
            proxy.wait()
        server.process.terminate()
        lines = server.process.communicate(timeout=60)[1].splitlines()
    requests = ["GET / ", "POST /api/caption ", "GET /api/model "]
    for part, line in zip(requests, lines, strict=True):
        assert part in line


@pytest.mark.slow
def test_the_command_of_the_dockerfile_serves_in_good_health(tmp_path: Path) -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    words = dict(steps)
    assert words["USER"] not in ("root", "0")
    assert words["EXPOSE"] == "8765"  # The default of --port.
    copied = [path for step, rest in steps if step == "COPY" for path in rest.split()[:-1]]
    assert [path for path in copied if not (ROOT / path).exists()] == []
    program, *options = *json.loads(words["ENTRYPOINT"]), *json.loads(words["CMD"])
    assert program == "captioner"
    command = [sys.executable, "-m", "captioner", *options, "--port", "0"]
    token = {"CAPTIONER_TOKEN": "of-the-container"}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **token}
    health = json.loads(words["HEALTHCHECK"].removeprefix("CMD"))
    with started(command, environment, tmp_path) as server:
        check = [part.replace(":8765/", f":{server.port}/") for part in health[1:]]
        assert subprocess.run([sys.executable, *check], env=environment).returncode == 0
        address = f"http://127.0.0.1:{server.port}/api/caption"
        sent = {"photo": DEMO_PHOTO.read_bytes()}
        assert httpx.post(address, files=sent).status_code == 401
        bearer = {"Authorization": "Bearer of-the-container"}
        answer = httpx.post(address, files=sent, headers=bearer, timeout=None).json()
        assert answer["photos"][0]["captions"][0]["caption"] == load().caption(DEMO_PHOTO).text
