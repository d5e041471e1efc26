"""The proxy and the service of docs/serving.md, as they stand there."""

import configparser
import os
import re
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import httpx
import pytest
from serve_samples import ROOT, photo_bytes, running

from captioner.cli.main import build_parser

PAGE = (ROOT / "docs/serving.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs Debian's nginx-light")
def test_nginx_leads_to_the_page(tiny_model: Path, tmp_path: Path) -> None:
    public = "https://photos.example.org/captions/"
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port = int(opened.getsockname()[1])
    served = running("--model", str(tiny_model), "--no-translator", "--public-url", public)
    with served as server:
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
                assert client.get("/style.css").status_code == 200
                sent = [("photo", ("a.png", photo_bytes()))]
                answer = client.post("/api/caption", files=sent)
                assert answer.json()["photos"][0]["captions"]
                foreign = {"Origin": "https://evil.example"}
                refused = client.post("/api/caption", files=sent, headers=foreign)
                assert refused.status_code == 403
        finally:
            proxy.terminate()
            proxy.wait()


def test_the_service_starts_a_command_that_there_is() -> None:
    service = configparser.ConfigParser()
    service.optionxform = str  # type: ignore[assignment, method-assign]
    service.read_string(block("ini"))
    program, *words = shlex.split(service["Service"]["ExecStart"])
    assert Path(program).name == "captioner"
    arguments = build_parser().parse_args(words)
    assert arguments.public_url == "https://photos.example.org/captions/"
    assert arguments.access_log


@pytest.mark.slow
def test_the_access_log_has_a_line_for_each_request(tiny_model: Path) -> None:
    served = running("--model", str(tiny_model), "--no-translator", "--access-log")
    with served as server:
        assert httpx.get(f"{server.address}api/model").json()["translators"] == {}
        server.process.terminate()
        _, errors = server.process.communicate(timeout=60)
    (line,) = errors.splitlines()
    assert '"GET /api/model HTTP/1.1" 200' in line
