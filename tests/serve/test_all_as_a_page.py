"""All photos of the page, downloaded as one page."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from chromium_samples import Open, add, captioned, downloaded, far, needs_chromium, photo_file
from PIL import Image
from playwright.sync_api import Page, expect
from serve_samples import running

from captioner.demo import DEMO_PHOTO
from captioner.render.region import fit
from captioner.vision.images import load_image

pytestmark = needs_chromium


def all_as_a_page(page: Page, path: Path) -> str:
    name, content = downloaded(page, page.locator("#all-html"))
    assert name == "captions.html"
    path.write_bytes(content)
    return content.decode()


def photos_of(text: str) -> list[Image.Image]:
    found = re.findall(r'<img src="data:image/jpeg;base64,([^"]+)"', text)
    return [Image.open(io.BytesIO(base64.b64decode(each))) for each in found]


@pytest.mark.parametrize("most", [2, 16])
def test_it_holds_more_photos_than_a_request(
    open_page: Open, saved_models: tuple[Path, Path], tmp_path: Path, most: int
) -> None:
    files = [photo_file(seed, f"<main> {seed}.png") for seed in range(8)]
    limit = 1.1 * max(len(each["buffer"]) for each in files) / 1024**2
    arguments = ("--max-photos", str(most), "--max-upload", str(limit))
    with running("--model", str(saved_models[0]), *arguments) as server:
        page = open_page(server.address)
        add(page, *files)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        text = all_as_a_page(page, tmp_path / "page.html")
    expect(page.locator("#error-message")).to_be_hidden()
    assert sum(url.endswith("/api/overlay") for url in asked) > 1
    assert re.findall(r"<article [^>]*>", text) == [
        f'<article class="item" id="item-{number}">' for number in range(8)
    ]
    assert text.count("</main>") == text.count("</html>") == 1
    browser = page.context.browser
    context = browser.new_context(reduced_motion="reduce")
    saved = context.new_page()
    saved.goto((tmp_path / "page.html").as_uri())
    assert saved.locator("figcaption").all_inner_texts() == [each["name"] for each in files]
    for number in (0, 7):  # Of the first request and of the last.
        card = saved.locator(".item").nth(number)
        card.locator(".word").first.hover()
        expect(card.locator("canvas")).to_be_visible()
    context.close()


def test_its_pictures_look_as_if_made_from_the_files(open_page: Open, tmp_path: Path) -> None:
    page = open_page()
    with Image.open(DEMO_PHOTO) as photo:
        wide = photo.convert("RGB").resize((1536, 1800), Image.Resampling.BICUBIC)
    buffer = io.BytesIO()
    wide.save(buffer, "PNG")
    large: Any = {"name": "large.png", "mimeType": "image/png", "buffer": buffer.getvalue()}
    files = [DEMO_PHOTO.read_bytes(), large["buffer"]]
    add(page, {"name": "demo.jpg", "mimeType": "image/jpeg", "buffer": files[0]}, large)
    text = all_as_a_page(page, tmp_path / "page.html")
    for found, file in zip(photos_of(text), files, strict=True):
        photo = load_image(file)
        expected, _ = fit(photo, (0, 0, *photo.size), 1000, enlarge=False)
        assert found.size == expected.size
        assert far(found.convert("RGB"), expected) < 3  # JPEG.


def test_it_says_how_many_are_in_it_and_why_one_is_not(open_page: Open, tmp_path: Path) -> None:
    page = open_page()
    bad = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no photo"}
    page.set_input_files("#files", [photo_file(1), bad, photo_file(2)])
    captioned(page, 2)
    failed = page.locator("[data-state=failed]")
    expect(failed.locator(".state")).to_contain_text("notes.txt is not an image that can be read")
    expect(failed.locator(".downloads")).to_be_hidden()
    sentence = "2 of 3 photos are in the file: the others have no caption"
    text = all_as_a_page(page, tmp_path / "page.html")
    assert text.count("<article") == 2
    expect(page.locator("#error-message")).to_have_text(sentence)
    failed.locator(".remove").click()
    assert len(json.loads(downloaded(page, page.locator("#all-json"))[1])) == 2
    expect(page.locator("#error-message")).to_be_hidden()
