"""Waiting requests: batched, too many, too slow, abandoned, failed."""

from __future__ import annotations

import io
import socket
import threading
from typing import Any

import httpx
import pytest
from PIL import Image
from serve_samples import (
    Files,
    as_directly,
    asking,
    caption,
    files,
    make_captioner,
    photo_bytes,
    problem,
    until,
)
from torch import Tensor

from captioner.caption import Caption
from captioner.serve.app import make_app
from captioner.serve.limits import Limits
from captioner.serve.service import Service


class Held:
    """Holds a captioner's search until `go`, and records its batch sizes."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.begun, self.go = threading.Event(), threading.Event()
        search = service.captioner.caption_annotations

        def held(annotations: Tensor, *arguments: Any, **named: Any) -> list[Caption]:
            self.sizes.append(len(annotations))
            self.begun.set()
            self.go.wait()
            return search(annotations, *arguments, **named)

        monkeypatch.setattr(service.captioner, "caption_annotations", held)

    def answers(
        self, service: Service, client: httpx.Client, count: int, **fields: str
    ) -> list[httpx.Response]:
        """The answers to a photo that is held and to so many that come meanwhile."""
        first = Sending(client, [files(0)])
        self.begun.wait()
        others = Sending(client, [files(seed) for seed in range(count)], **fields)
        until(lambda: len(service.captions.jobs) == count)
        self.go.set()
        return first.ended() + others.ended()


class Sending:
    """Threads that each send one photo."""

    def __init__(self, client: httpx.Client, photos: list[Files], **fields: str) -> None:
        self.answers: list[httpx.Response] = []

        def ask(photo: Files) -> None:
            answer = client.post("/api/caption", files=photo, data=fields, timeout=None)
            self.answers.append(answer)

        self.threads = [threading.Thread(target=ask, args=(photo,)) for photo in photos]
        for thread in self.threads:
            thread.start()

    def ended(self) -> list[httpx.Response]:
        """The answers, once all are there."""
        for thread in self.threads:
            thread.join()
        return self.answers


def waiting(client: httpx.Client) -> int:
    """The number of unanswered requests."""
    return int(client.get("/api/health").json()["waiting"])


def test_requests_that_arrive_together_are_captioned_together(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(service, monkeypatch)
    answers = held.answers(service, client, 7)
    assert held.sizes == [1, 7]
    expected = make_captioner().caption([photo_bytes(seed) for seed in range(7)])
    for answer in answers:
        (photo,) = answer.json()["photos"]
        as_directly(photo, expected[int(photo["name"].partition(".")[0])])


def test_sampling_is_not_batched(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(service, monkeypatch)
    held.answers(service, client, 3, sample="true", temperature="3")
    assert held.sizes == [1, 1, 1, 1]


def test_requests_beyond_the_queue_get_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(make_captioner(), None, Limits(waiting=3))
    held = Held(service, monkeypatch)
    with asking(make_app(service)) as client:
        sending = Sending(client, [files(seed) for seed in range(3)])
        until(lambda: waiting(client) == 3)
        busy = client.post("/api/caption", files=files(9))
        assert "busy" in problem(busy, 503)
        assert int(busy.headers["Retry-After"]) >= 1
        assert client.get("/api/health").json()["waiting"] == 3
        held.go.set()
        assert [answer.status_code for answer in sending.ended()] == [200] * 3
        assert caption(client, files(9))
        assert waiting(client) == 0


def test_a_request_ends_at_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(make_captioner(), None, Limits(seconds=0.3))
    held = Held(service, monkeypatch)
    with asking(make_app(service)) as client:
        answer = client.post("/api/caption", files=files(0))
        assert "not ready within 0.3 seconds" in problem(answer, 503)
        assert "Retry-After" in answer.headers
        assert waiting(client) == 0
        held.go.set()


def test_photos_of_clients_that_left_are_skipped(
    service: Service, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(service, monkeypatch)
    first = Sending(client, [files(0)])
    held.begun.wait()
    request = client.build_request("POST", "/api/caption", files=files(1))
    host, port = client.base_url.host, client.base_url.port or 0
    with socket.create_connection((host, port)) as line:
        lines = [f"{name}: {value}" for name, value in request.headers.items()]
        head = "\r\n".join(["POST /api/caption HTTP/1.1", *lines, "", ""])
        line.sendall(head.encode() + request.read())
        until(lambda: len(service.captions.jobs) == 1)
    until(lambda: waiting(client) == 1)
    held.go.set()
    first.ended()
    assert caption(client, files(2))
    assert held.sizes == [1, 1]


def test_a_fault_of_the_server_tells_nothing(
    service: Service,
    client: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(pixels: Tensor) -> Tensor:
        raise RuntimeError(f"a secret in {__file__}")

    monkeypatch.setattr(service.captioner, "encode", broken)
    sentence = problem(client.post("/api/caption", files=files(0)), 500)
    assert "secret" not in sentence
    until(lambda: "secret" in caplog.text)  # Its operator reads the trace.
    # Not by the client, whose connection the server is closing.
    assert httpx.get(client.base_url.join("/api/health")).json() == {"status": "ok", "waiting": 0}


@pytest.mark.slow
def test_photos_that_take_too_long_do_not_hold_up_a_good_one() -> None:
    pixels = Image.new("RGB", (7_000, 7_000))
    file = io.BytesIO()
    pixels.save(file, "PNG", compress_level=1)
    service = Service(make_captioner(), None, Limits(decoding_seconds=0.2))
    with asking(make_app(service)) as client:
        sending = Sending(client, [[("photo", ("bomb.png", file.getvalue()))]] * 4)
        assert caption(client, files(1))
        answers = sending.ended()
    for answer in answers:
        sentence = "bomb.png cannot be decoded: the decoder took more than 0.2 s"
        assert problem(answer, 422) == sentence
