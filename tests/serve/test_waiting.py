"""Waiting requests: batched, too many, too slow, abandoned, failed."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from samples import Patch, photo_bytes
from serve_samples import Files, as_directly, asking, caption, files, make_captioner, problem
from torch import Tensor

from captioner.caption.caption import Caption
from captioner.decoding.options import SearchOptions
from captioner.serve import Limits
from captioner.serve.service import Batcher, Service

PLAIN, SAMPLING = SearchOptions(), SearchOptions(sample=True)


def until(condition: Any) -> None:
    """Return when the condition holds."""
    while not condition():
        threading.Event().wait(0.01)


def test_waiting_jobs_share_batches_of_four_and_get_their_own_results() -> None:
    """They stay whole and in order, and a larger one goes by itself."""
    batches: list[list[int]] = []
    begun, go = threading.Event(), threading.Event()

    def work(items: Sequence[int], search: SearchOptions, language: str) -> list[int]:
        batches.append(list(items))
        begun.set()
        go.wait()
        return [2 * item // (item != 13) for item in items]

    batcher = Batcher(work, 4)
    batcher.submit([0], PLAIN, "a")
    begun.wait()  # Its thread is at work, and what comes now waits.
    jobs = [[1], [1], [1, 2], [1, 2, 3], [4], [5, 6, 7], [8, 9], list(range(20, 30)), [10]]
    good = [batcher.submit(items, PLAIN, "a") for items in jobs]
    bad = batcher.submit([13], PLAIN, "b")
    assert batcher.submit([11], PLAIN, "a").cancel()
    for search in (PLAIN, PLAIN, PLAIN.replace(beam=2), SAMPLING, SAMPLING):
        batcher.submit([12], search, "a")  # Samples share no batch.
    go.set()
    batcher.close()
    assert [promise.result() for promise in good] == [[2 * n for n in job] for job in jobs]
    assert [len(items) for items in batches] == [1, 4, 4, 3, 2, 10, 1, 1, 2, 1, 1, 1]
    with pytest.raises(ZeroDivisionError):
        bad.result()


class Held:
    """A service whose search waits for `go`; records its batch sizes, and sends photos."""

    def __init__(self, stack: ExitStack, **limits: Any) -> None:
        self.service = Service(make_captioner(), None, Limits(**limits), batch_size=8)
        self.client = stack.enter_context(asking(self.service))
        self.sizes: list[int] = []
        self.go = threading.Event()
        self._threads = stack.enter_context(ThreadPoolExecutor(16))
        stack.callback(self.go.set)
        search = self.service.captioner.caption_annotations

        def held(annotations: Tensor, *arguments: Any, **named: Any) -> list[Caption]:
            self.sizes.append(len(annotations))
            self.go.wait()
            return search(annotations, *arguments, **named)

        self.service.captioner.caption_annotations = held  # type: ignore[method-assign]

    def send(self, photo: Files) -> Future[httpx.Response]:
        return self._threads.submit(self.client.post, "/api/caption", files=photo)

    def waiting(self) -> int:
        """The number of unanswered requests."""
        return int(httpx.get(self.client.base_url.join("/api/health")).json()["waiting"])


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_requests_that_arrive_together_are_captioned_together(stack: ExitStack) -> None:
    held = Held(stack, waiting=8)
    sent = [held.send(files(0))]
    until(lambda: held.sizes)
    sent += [held.send(files(seed)) for seed in range(7)]
    until(lambda: len(held.service.captions.jobs) == 7)
    busy = held.client.post("/api/caption", files=files(9))
    assert "busy" in problem(busy, 503)
    assert int(busy.headers["Retry-After"]) >= 1
    assert held.waiting() == 8
    held.go.set()
    expected = make_captioner().caption([photo_bytes(seed) for seed in range(7)])
    for each in sent:
        (photo,) = each.result().json()["photos"]
        as_directly(photo, expected[int(photo["name"].partition(".")[0])])
    assert held.sizes == [1, 7]
    assert held.waiting() == 0


def test_a_request_ends_at_its_timeout(stack: ExitStack) -> None:
    held = Held(stack, seconds=1.5)
    for _ in range(2):
        answer = held.client.post("/api/caption", files=files(0))
        assert "not ready within 1.5 seconds" in problem(answer, 503)
        assert "Retry-After" in answer.headers
    assert held.waiting() == 0
    held.service.limits = Limits()
    held.go.set()
    assert caption(held.client, files(1))
    # The second photo was not captioned for nobody; nor was the first, if its time ended before.
    assert held.sizes in ([1], [1, 1])


def test_a_fault_of_the_server_tells_nothing(
    stack: ExitStack, monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(pixels: Tensor) -> Tensor:
        raise RuntimeError(f"a secret in {__file__}")

    held = Held(stack)
    monkeypatch.setattr(held.service.captioner.backend, "encode", broken)
    assert "secret" not in problem(held.client.post("/api/caption", files=files(0)), 500)
    until(lambda: "secret" in caplog.text)  # Its operator reads the trace.
    assert held.waiting() == 0


def test_large_uploads_are_refused_while_too_many_wait_but_no_small_ones(stack: ExitStack) -> None:
    held = Held(stack, upload_bytes=3_000_000)
    large = [("photo", ("large.bmp", photo_bytes(0, (900, 900), "BMP")))]  # 2.4 MB.
    sent = [held.send(large) for _ in range(3)]
    until(lambda: len(held.service.captions.jobs) + len(held.sizes) >= 3)
    sent.append(held.send(files(1)))
    busy = held.client.post("/api/caption", files=large)
    assert problem(busy, 503) == "busy: too many large uploads are waiting already"
    assert "Retry-After" in busy.headers
    held.go.set()
    assert [each.result().status_code for each in sent] == [200] * 4
    assert caption(held.client, large)
