"""Waiting requests: batched, too many, too slow, abandoned, failed."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
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

from captioner.caption.caption import Caption
from captioner.serve import Limits
from captioner.serve.app import make_app
from captioner.serve.service import Service


class Held:
    """A service whose search waits for `go`; records its batch sizes, and sends photos."""

    def __init__(self, stack: ExitStack, **limits: Any) -> None:
        self.service = Service(make_captioner(), None, Limits(**limits), batch_size=8)
        self.client = stack.enter_context(asking(make_app(self.service)))
        self.sizes: list[int] = []
        self.begun, self.go = threading.Event(), threading.Event()
        self._threads = stack.enter_context(ThreadPoolExecutor(16))
        stack.callback(self.go.set)
        search = self.service.captioner.caption_annotations

        def held(annotations: Tensor, *arguments: Any, **named: Any) -> list[Caption]:
            self.sizes.append(len(annotations))
            self.begun.set()
            self.go.wait()
            return search(annotations, *arguments, **named)

        self.service.captioner.caption_annotations = held  # type: ignore[method-assign]

    def send(self, photo: Files, **fields: str) -> Future[httpx.Response]:
        post = self.client.post
        return self._threads.submit(post, "/api/caption", files=photo, data=fields, timeout=None)

    def answers(self, count: int, **fields: str) -> list[httpx.Response]:
        """The answers to a photo that is held and to so many that come meanwhile."""
        sent = [self.send(files(0))]
        self.begun.wait()
        sent += [self.send(files(seed), **fields) for seed in range(count)]
        until(lambda: len(self.service.captions.jobs) == count)
        self.go.set()
        return [each.result() for each in sent]

    def waiting(self) -> int:
        """The number of unanswered requests."""
        return int(httpx.get(self.client.base_url.join("/api/health")).json()["waiting"])


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_requests_that_arrive_together_are_captioned_together(stack: ExitStack) -> None:
    held = Held(stack)
    answers = held.answers(7)
    assert held.sizes == [1, 7]
    expected = make_captioner().caption([photo_bytes(seed) for seed in range(7)])
    for answer in answers:
        (photo,) = answer.json()["photos"]
        as_directly(photo, expected[int(photo["name"].partition(".")[0])])


def test_sampling_is_not_batched(stack: ExitStack) -> None:
    held = Held(stack)
    held.answers(3, sample="true", temperature="3")
    assert held.sizes == [1, 1, 1, 1]


def test_requests_beyond_the_queue_get_retry_after(stack: ExitStack) -> None:
    held = Held(stack, waiting=3)
    sent = [held.send(files(seed)) for seed in range(3)]
    until(lambda: held.waiting() == 3)
    busy = held.client.post("/api/caption", files=files(9))
    assert "busy" in problem(busy, 503)
    assert int(busy.headers["Retry-After"]) >= 1
    assert held.waiting() == 3
    held.go.set()
    assert [each.result().status_code for each in sent] == [200] * 3
    assert caption(held.client, files(9))
    assert held.waiting() == 0


def test_a_request_ends_at_its_timeout(stack: ExitStack) -> None:
    held = Held(stack, seconds=0.3)
    answer = held.client.post("/api/caption", files=files(0))
    assert "not ready within 0.3 seconds" in problem(answer, 503)
    assert "Retry-After" in answer.headers
    assert "not ready" in problem(held.client.post("/api/caption", files=files(0)), 503)
    assert held.waiting() == 0
    held.go.set()
    assert caption(held.client, files(1))
    # The second photo was not captioned for nobody; nor was the first, if its time ended before.
    assert held.sizes in ([1], [1, 1])


def test_a_fault_of_the_server_tells_nothing(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(pixels: Tensor) -> Tensor:
        raise RuntimeError(f"a secret in {__file__}")

    held = Held(stack)
    monkeypatch.setattr(held.service.captioner, "encode", broken)
    assert "secret" not in problem(held.client.post("/api/caption", files=files(0)), 500)
    until(lambda: "secret" in caplog.text)  # Its operator reads the trace.
    assert held.waiting() == 0


@pytest.mark.slow
def test_photos_that_take_too_long_do_not_hold_up_a_good_one(stack: ExitStack) -> None:
    held = Held(stack, decoding_seconds=0.2)
    held.go.set()
    bomb = photo_bytes(0, (7_000, 7_000))
    sent = [held.send([("photo", ("bomb.png", bomb))]) for _ in range(4)]
    assert caption(held.client, files(1))
    for each in sent:
        sentence = "bomb.png cannot be decoded: the decoder took more than 0.2 s"
        assert problem(each.result(), 422) == sentence
