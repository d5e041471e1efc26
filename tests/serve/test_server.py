"""The server as a process: addresses, signals, and sixty requests at once."""

import asyncio
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from serve_samples import Running, files, photo_bytes, running

from captioner.caption.folder import load_model
from captioner.serve.server import listen


@pytest.mark.slow
def test_it_serves_the_page_and_both_models_and_answers_head_as_get(server: Running) -> None:
    with httpx.Client(base_url=server.address) as client:
        assert "<title>captioner</title>" in client.get("/").text
        assert list(client.get("/api/model").json()["translators"]) == ["de"]
        for address in ("/", "/demo.jpg", "/viewer.js", "/api/model"):
            whole, head = client.get(address), client.head(address)
            assert (head.status_code, head.content) == (200, b""), address
            assert head.headers["content-length"] == str(len(whole.content))
        assert client.head("/api/caption").status_code == 405
        assert client.get("/api/health").json()["waiting"] == 0  # The connection is still good.


@pytest.mark.slow
def test_none_of_sixty_is_lost(server: Running, saved_models: tuple[Path, Path]) -> None:
    async def all_at_once() -> list[httpx.Response]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=server.address, limits=limits, timeout=None) as some:
            asked = [some.post("/api/caption", files=files(seed)) for seed in range(60)]
            return list(await asyncio.gather(*asked))

    answers = asyncio.run(all_at_once())
    expected = load_model(saved_models[0]).caption([photo_bytes(seed) for seed in range(60)])
    assert len({caption.log_probability for caption in expected}) == 60
    for seed, (answer, caption) in enumerate(zip(answers, expected, strict=True)):
        assert answer.status_code == 200
        (photo,) = answer.json()["photos"]
        assert photo["name"] == f"{seed}.png"
        (own,) = photo["captions"]
        assert own["caption"] == caption.text
        assert own["log_probability"] == pytest.approx(caption.log_probability, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_when_requests_under_way_are_answered(
    number: signal.Signals, saved_models: tuple[Path, Path]
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
            line.sendall(content)
            answer = b""
            while more := line.recv(65536):
                answer += more
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'"caption"' in answer
        out, errors = server.process.communicate()
    assert (server.process.returncode, out, errors) == (0, "captioner: ended\n", "")


def test_the_address_of_a_listener_is_that_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.slow
@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_listening_everywhere_it_names_an_address_to_be_opened_from_elsewhere(
    host: str, saved_models: tuple[Path, Path]
) -> None:
    if ":" in host and not Path("/proc/net/if_inet6").exists():
        pytest.skip("needs version 6 of the protocol")
    with running(saved_models[0], "--host", host) as server:
        own = urlsplit(server.address)
        assert own.hostname not in ("0.0.0.0", "::", "127.0.0.1", "::1")
        headers = {"Host": own.netloc, "Origin": server.address.rstrip("/")}
        address = f"http://127.0.0.1:{server.port}/api/health"
        assert httpx.get(address, headers=headers).status_code == 200
