"""Shared by the browser tests: start flags, screens, photos, drawn pixels, a server of files."""

import base64
import functools
import io
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    expect,
    sync_playwright,
)
from samples import photo_bytes

CHROMIUM = shutil.which("chromium")

needs_chromium = [pytest.mark.slow, pytest.mark.chromium]

_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
]

DESK = {"viewport": {"width": 1280, "height": 860}}
TELEPHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}

Open = Callable[..., Page]
"""Opens the page, as the fixture `open_page` does."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)
        yield browser
        browser.close()


@contextmanager
def opening(browser: Browser) -> Iterator[Open]:
    """Opens pages; in the end, nothing came from elsewhere and nothing went wrong unseen."""
    contexts: list[BrowserContext] = []
    asked: list[str] = []
    faults: list[str] = []

    def note(said: ConsoleMessage) -> None:
        if "Security Policy" in said.text:
            faults.append(said.text)

    def opened(address: str, **how: Any) -> Page:
        context = browser.new_context(**{**DESK, "reduced_motion": "reduce", **how})
        context.set_default_timeout(120_000)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", note)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []
    own = ("http://127.0.0.1:", "http://localhost:", "blob:", "data:", "file:")
    assert [url for url in asked if not url.startswith(own)] == []


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=600")
        super().end_headers()


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """The port of a server of files."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def photo_file(seed: int = 0, name: str = "photo.png", size: tuple[int, int] = (240, 180)) -> Any:
    return {"name": name, "mimeType": "image/png", "buffer": photo_bytes(seed, size)}


def add(page: Page, *files: Any) -> Locator:
    """Choose photos, and wait until each has its captions; gives the first card of the page."""
    earlier = page.locator("[data-state=done]").count()
    page.set_input_files("#files", list(files))
    captioned(page, earlier + len(files))
    return page.locator(".item").first


def captioned(page: Page, count: int) -> None:
    expect(page.locator("[data-state=done]")).to_have_count(count, timeout=120_000)


def downloaded(page: Page, button: Locator) -> tuple[str, bytes]:
    """The name and the content of the file that a button downloads."""
    with page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def words_of(card: Locator) -> list[str]:
    return card.locator(".caption").first.locator(".word").all_inner_texts()


def picture(address: str) -> Image.Image:
    """The picture of a data address."""
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB")
