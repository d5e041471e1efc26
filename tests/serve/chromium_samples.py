"""Shared by the browser tests: start flags, screens, photos, drawn pixels."""

import base64
import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Locator, Page, expect
from serve_samples import photo_bytes

CHROMIUM = shutil.which("chromium")

needs_chromium = [
    pytest.mark.slow,
    pytest.mark.chromium,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium"),
]

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"),
]

DESK = {"viewport": {"width": 1280, "height": 860}}
TELEPHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}

Open = Callable[..., Page]
"""Opens the page, as `conftest.open_page` does."""


def photo_file(seed: int = 0, name: str = "photo.png") -> Any:
    return {"name": name, "mimeType": "image/png", "buffer": photo_bytes(seed, (240, 180))}


def add(page: Page, *files: Any) -> Locator:
    """Choose photos, and wait until each has its captions; gives the first card of the page."""
    earlier = page.locator("[data-state=done]").count()
    page.set_input_files("#files", list(files))
    captioned(page, earlier + len(files))
    return page.locator(".item").first


def captioned(page: Page, count: int) -> None:
    expect(page.locator("[data-state=done]")).to_have_count(count, timeout=120_000)


def translate(page: Page, text: str) -> None:
    """Type sentences into their tab and have them translated."""
    page.locator("#tab-sentences").click()
    page.fill("#text", text)
    page.keyboard.press("Enter")
    expect(page.locator(".translation")).to_have_count(1)


def downloaded(page: Page, button: Locator) -> tuple[str, bytes]:
    """The name and the content of the file that a button downloads."""
    with page.expect_download() as download:
        button.click()
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def words_of(card: Locator) -> list[str]:
    return card.locator(".caption").first.locator(".word").all_inner_texts()


def canvas_of(card: Locator) -> Image.Image:
    """The overlay of the photo."""
    return _picture(card.locator("canvas").evaluate("canvas => canvas.toDataURL('image/png')"))


def preview_of(card: Locator) -> Image.Image:
    return _picture(card.locator("img").get_attribute("src") or "")


def _picture(address: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB")
