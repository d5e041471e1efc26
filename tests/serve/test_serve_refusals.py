"""What is refused, each by one sentence that reveals nothing about the machine."""

import json
import socket
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from samples import Refused
from serve_samples import asking, caption, files, make_captioner, photo_bytes, problem

from captioner.errors import UserError
from captioner.serve import Limits
from captioner.serve.app import make_app
from captioner.serve.server import listen
from captioner.serve.service import Service

GOOD: dict[str, Any] = {"words": ["a", "dog"], "maps": [[[0.5, 0.5]], [[0.0, 1.0]]]}
JSON, FORM = "application/json", "multipart/form-data; boundary=x"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"beam": "0"}, "beam '0' is not at least 1"),
        ({"beam": "21"}, "'beam' is 21, and the limit is 20"),
        ({"n_best": "21"}, "'n_best' is 21, and the limit is 20"),
        ({"beam": "9" * 5000}, "beam should be a whole number"),
        ({"n_best": "3", "beam": "2"}, "n_best 3"),
        ({"maximum_length": "1000"}, "'maximum_length' is 1000"),
        ({"temperature": "0.5"}, "'temperature' has no meaning without 'sample'"),
        ({"sample": "perhaps"}, "sample should be true or false"),
        ({"length_normalisation": "1e400"}, "length_normalisation should be a finite number"),
        ({"nbest": "3"}, "unknown field 'nbest'; did you mean 'n_best'?"),
        ({"photo": "text"}, "photo[0]: expected a file, found text"),
        ({"language": "fr"}, "'language' should be en or de"),
    ],
)
def test_a_wrong_field_is_named(client: httpx.Client, fields: dict[str, str], named: str) -> None:
    for address in ("caption", "overlay"):
        answer = client.post(f"/api/{address}", files=files(0), data=fields)
        assert named in problem(answer, 422)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({}, "captions[0] should be a list"),
        ([], "captions[0] should have at least 1 item"),
        ([GOOD] * 21, "captions[0] should have at most 20 items"),
        ([{**GOOD, "words": []}], "captions[0][0].words should have at least 1 item"),
        ([{**GOOD, "words": ["a", "x" * 101]}], "at most 100 characters"),
        ([{**GOOD, "maps": []}], "shape (T, rows, columns)"),
        ([{**GOOD, "maps": [[[0.5, 0.5]]]}], "2 words but 1 attention maps"),
        ([{**GOOD, "maps": [[[0.5, 0.5]], [[-1.0, 2.0]]]}], "weights >= 0 that sum to 1"),
        ([{**GOOD, "maps": [[[0.5, 0.5]], [[1.0]]]}], "expected sequence of length 2"),
        ([{**GOOD, "word_log_probabilities": [1, 1]}], "[0] 1 is not at most 0"),
        ([{**GOOD, "word_log_probabilities": [-1]}], "not as many"),
        ([{**GOOD, "word_log_probabilities": [-1, float("nan")]}], "should be a finite number"),
    ],
)
def test_captions_that_cannot_be_drawn_are_refused(
    client: httpx.Client, value: Any, named: str
) -> None:
    for kind in ("png", "gif", "html"):
        fields = {"format": kind, "captions": json.dumps(value)}
        answer = client.post("/api/overlay", files=files(0), data=fields)
        assert named in problem(answer, 422)


@pytest.mark.parametrize(
    ("seeds", "fields", "named"),
    [
        ((0,), {"format": "svg"}, "format 'svg' is not one of png, gif, html"),
        ((0, 1), {"format": "gif"}, "a gif shows one photo"),
        ((0,), {"strength": "1.5"}, "strength '1.5' is not at most 1"),
        ((0, 1), {"format": "html", "captions": json.dumps([GOOD])}, "once for each photo"),
        ((0,), {"maps": "true"}, "unknown field 'maps'"),
    ],
)
def test_a_wrong_field_of_a_drawing_is_named(
    client: httpx.Client, seeds: tuple[int, ...], fields: dict[str, str], named: str
) -> None:
    answer = client.post("/api/overlay", files=files(*seeds), data=fields)
    assert named in problem(answer, 422)


@pytest.mark.parametrize(
    ("content", "kind", "status", "named"),
    [
        (b"{}", JSON, 422, "'photo' is missing: send a form"),
        (b"\xff\xd8=", "application/x-www-form-urlencoded", 422, "'photo' is missing: send a form"),
        (b"", "multipart/form-data", 400, "boundary"),
        (b"nonsense", FORM, 400, "Invalid multipart data"),
        (b"--x\r\n\r\nvalue\r\n--x--", FORM, 400, "must be provided"),
        (b"--x\r\n" + b"a" * 70_000, FORM, 400, "Invalid"),
        (b"--x", f"{FORM}; charset=nonsense", 422, "'photo' is missing"),
    ],
)
def test_malformed_forms_are_refused(
    client: httpx.Client, content: bytes, kind: str, status: int, named: str
) -> None:
    answer = client.post("/api/caption", content=content, headers={"Content-Type": kind})
    assert named in problem(answer, status)


@pytest.mark.parametrize(
    ("content", "status", "named"),
    [
        (b"", 422, "a JSON object"),
        (b"{", 400, "not JSON"),
        (b"[" * 5000, 400, "error parsing the body"),
        (b"[]", 422, "a JSON object"),
        (b"{}", 422, "'sentences' is missing"),
        (b'{"sentences": []}', 422, "sentences should have at least 1 item"),
        (b'{"sentences": ["\\ud800"]}', 422, "sentences[0] should be text"),
        (json.dumps({"sentences": ["x" * 2001]}).encode(), 422, "at most 2000 characters"),
        (json.dumps({"sentences": ["x"] * 17}).encode(), 422, "should have at most 16 items"),
        (b'{"sentences": ["a"], "beam": "3"}', 422, "beam should be a whole number"),
        (b'{"sentences": ["a"], "beam": 21}', 422, "'beam' is 21"),
        (b'{"sentences": ["a"], "coverage_penalty": NaN}', 422, "finite"),
        (b'{"sentences": ["a"], "beem": 1}', 422, "unknown field 'beem'; did you mean 'beam'?"),
        (b'{"sentences": ["a"], "language": "it"}', 422, "field 'language' should be de"),
    ],
)
def test_invalid_translation_requests_are_refused(
    client: httpx.Client, content: bytes, status: int, named: str
) -> None:
    answer = client.post("/api/translate", content=content, headers={"Content-Type": JSON})
    assert named in problem(answer, status)
    answer = client.post("/api/translate", content=content)
    assert "as application/json" in problem(answer, 422)


@pytest.mark.parametrize(
    ("method", "address", "status"),
    [
        ("GET", "/api/nothing", 404),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd", 404),
        ("GET", "/static/index.html", 404),
        ("GET", "/api/caption", 405),
        ("POST", "/api/health", 405),
        ("POST", "/", 405),
    ],
)
def test_unknown_addresses_and_methods_are_refused(
    client: httpx.Client, method: str, address: str, status: int
) -> None:
    problem(client.request(method, address), status)


def test_requests_over_a_limit_are_refused() -> None:
    limits = Limits(upload_bytes=60_000, pixels=11_000, photos=2)
    with asking(make_app(Service(make_captioner(), None, limits))) as client:
        assert len(caption(client, files(0, 1))) == 2  # 10,800 pixels each.
        answer = client.post("/api/caption", files=files(0, 1, 2))
        assert "has 3 photos, and the limit is 2" in problem(answer, 422)
        wide = [("photo", ("wide.png", photo_bytes(0, (140, 90))))]
        sentence = problem(client.post("/api/caption", files=wide), 422)
        assert sentence.startswith("wide.png is too large: 140 x 90 is 12,600 pixels")
        large = [("photo", ("large.png", b"x" * 60_000))]
        assert "60,000 bytes" in problem(client.post("/api/caption", files=large), 413)

        def without_length() -> Iterator[bytes]:
            yield b"--x\r\n"
            yield b'Content-Disposition: form-data; name="photo"; filename="a"\r\n\r\n'
            for _ in range(7):
                yield b"y" * 10_000

        for address, kind in (("overlay", FORM), ("translate", JSON)):
            headers = {"Content-Type": kind}
            answer = client.post(f"/api/{address}", content=without_length(), headers=headers)
            assert "60,000 bytes" in problem(answer, 413)


def test_content_that_does_not_arrive_is_not_waited_for() -> None:
    with (
        asking(make_app(Service(make_captioner(), None, Limits(seconds=0.2)))) as client,
        socket.create_connection((client.base_url.host, client.base_url.port or 0)) as line,
    ):
        head = "POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n"
        line.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n{")
        assert line.recv(65536).decode().startswith("HTTP/1.1 503 ")
        assert client.get("/api/health").json() == {"status": "ok", "waiting": 0}


def test_a_port_in_use_is_named() -> None:
    taken = listen("127.0.0.1", 0)
    port = taken.socket.getsockname()[1]
    sentence = f"port {port}: Address already in use; see --host"
    with taken.socket, pytest.raises(UserError, match=sentence):
        listen("127.0.0.1", port)


def test_without_its_extra_it_says_what_to_install(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "captioner.serve.app", None)
    assert 'more packages: pip install "captioner[serve]"' in refused(["serve"])


def test_an_empty_token_is_not_taken_for_none(
    refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPTIONER_TOKEN", " ")
    assert "CAPTIONER_TOKEN should hold a token" in refused(["serve"])
