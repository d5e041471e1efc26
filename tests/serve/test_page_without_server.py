"""The page without a server, in a browser: Python's captions, offline, wide and narrow."""

import io
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium_samples import add, browser, downloaded, needs_chromium, opening, photo_file, serving
from photo_samples import DEMO_CAPTION
from PIL import Image
from playwright.sync_api import Browser, Error, Page, expect
from samples import renew_digests

import captioner
from captioner.caption.confidence import WordWeights
from captioner.caption.folder import export_model, load_model
from captioner.model_folders import model_folder
from captioner.serve.page_without_server import write_page

__all__ = ["browser"]

pytestmark = [
    *needs_chromium,
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs npm"),
]
DEMO = Path(captioner.__file__).parent / "demo.jpg"
LAST = DEMO_CAPTION.split()[-1]
SIZES = [(224, 224), (300, 200), (1000, 700), (97, 400), (60, 50)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    model = load_model(model_folder())
    assert model.confidence is not None
    words = WordWeights(intercept=-2, probability=4, caption=1, both=-0.5, position=-0.1)
    words = words.replace(offsets={LAST: -9})
    model.confidence = model.confidence.replace(words=words)
    begin = " ".join(DEMO_CAPTION.split()[:2])
    # So low that the last word, of which there is doubt, stays.
    model.search = model.search.replace(truth_weight=0.3, begin=begin)
    export_model(model, folder, "float16")
    write_page(folder)
    return folder


@pytest.fixture
def page(folder: Path, browser: Browser) -> Iterator[Page]:
    """The open page."""
    with serving(folder) as port, opening(browser) as opened:
        page = opened(f"http://localhost:{port}/")
        ready(page)
        yield page


def file(name: str, content: bytes) -> dict[str, object]:
    return {"name": name, "mimeType": "image/png", "buffer": content}


def png(photo: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    photo.save(buffer, "png", **options)
    return buffer.getvalue()


def ready(page: Page) -> None:
    expect(page.locator("#status")).to_contain_text("Ready", timeout=180_000)


def test_photos_have_the_captions_and_maps_of_python_also_without_a_network(
    page: Page, folder: Path
) -> None:
    graphs = captioner.load(folder)
    assert page.evaluate("crossOriginIsolated")  # With threads, on any server of files.
    demo, turned, clear = Image.open(DEMO), Image.Exif(), Image.open(DEMO)
    turned[0x0112] = 6  # Orientation: shown a quarter turn to the right.
    clear.putalpha(Image.linear_gradient("L").resize(demo.size))
    photos = [
        DEMO.read_bytes(),
        *(photo_file(seed, size=size)["buffer"] for seed, size in enumerate(SIZES)),
        png(demo.resize((3000, 2400)).rotate(90, expand=True), exif=turned),
        png(clear),
    ]
    for content in photos:
        wanted = graphs.caption(content)
        add(page, file("a.png", content))
        card = page.locator(".item").last
        name, kept = downloaded(page, card.locator("[data-format=json]"))
        (found,) = json.loads(kept)["captions"]
        assert (name, found["caption"]) == ("a-captions.json", wanted.text)
        if content in photos[-2:]:  # Browsers scale them in another way.
            continue
        assert found["log_probability"] == pytest.approx(wanted.log_probability, abs=1e-3)
        assert found["confidence"] == pytest.approx(wanted.confidence, abs=1e-3)
        assert found["word_confidence"] == pytest.approx(list(wanted.word_confidence), abs=1e-3)
        assert np.abs(np.array(found["maps"]) - wanted.attention).max() < 1e-3
    page.context.set_offline(True)
    page.reload()
    ready(page)
    add(page, file("a.png", DEMO.read_bytes()))
    words = page.locator(".word")
    assert words.all_inner_texts() == DEMO_CAPTION.split()
    expect(words.last).to_have_class("word doubtful")
    expect(words.last).to_have_attribute("title", "0 %")
    assert words.nth(1).get_attribute("title") is None  # Of the given beginning.
    expect(page.locator(".score")).to_have_text(re.compile(r"^confidence \d+ %$"))
    name, content = downloaded(page, page.locator("[data-format=png]"))
    picture = Image.open(io.BytesIO(content))
    assert (name, picture.format, picture.width) == ("a-captions.png", "PNG", 1412)
    words.last.hover()
    expect(page.locator(".stage canvas")).to_be_visible()
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.set_input_files("#files", file("b.png", b"none"))
    expect(page.locator("[data-state=failed]")).to_contain_text("b.png cannot be captioned: The")


def test_a_new_export_replaces_the_old_one_and_works_without_a_network(
    folder: Path, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    shutil.copytree(folder, site)
    monkeypatch.setattr("captioner.serve.page_without_server._write_runtime", lambda folder: None)
    worker = (site / "service_worker.js").read_bytes()
    write_page(site)
    assert (site / "service_worker.js").read_bytes() == worker  # Nothing has changed.
    with serving(site) as port:
        page = browser.new_page()
        page.goto(f"http://localhost:{port}/")
        ready(page)
        words = (site / "vocabulary.json").read_text()
        (site / "vocabulary.json").write_text(words.replace(f'"{LAST}"', '"ocelot"'))
        renew_digests(site, "vocabulary.json")
        write_page(site, "My <trip>")
        assert '"name">My &lt;trip&gt;</h1>' in (site / "index.html").read_text()
        page.reload()
        name = (site / "service_worker.js").read_text().split('"')[1]
        # All but the licence, the service worker, and what only Python reads.
        kept = len([*site.glob("*.*")]) - 5
        count = "async (name) => (await (await caches.open(name)).keys()).length"
        found = 0
        end = time.monotonic() + 180
        while found != kept and time.monotonic() < end:
            page.wait_for_timeout(250)
            with suppress(Error):  # The page loads itself anew meanwhile.
                found = page.evaluate(count, name)
        assert found == kept
        ready(page)
        page.context.set_offline(True)
        page.reload()
        page.wait_for_load_state()
        page.set_input_files("#files", [file("a.jpg", DEMO.read_bytes())] * 3)  # Still loading.
        expect(page.locator("[data-state=done]")).to_have_count(3, timeout=120_000)
        assert (
            page.locator(".words").all_inner_texts() == [DEMO_CAPTION.replace(LAST, "ocelot")] * 3
        )
        page.context.close()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("ort.wasm.min.js", None, "ort.wasm.min.js: status 404"),
        ("captioner.json", None, "captioner.json: status 404"),
        ("start.onnx", b"x", "start.onnx: 1 of "),
    ],
)
def test_the_page_names_a_file_that_it_could_not_load(
    folder: Path, browser: Browser, tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    site = shutil.copytree(folder, tmp_path / "site")
    (site / name).unlink()
    if content:
        (site / name).write_bytes(content)
    with serving(site) as port:
        page = browser.new_page(service_workers="block")
        page.goto(f"http://localhost:{port}/")
        sentence = page.locator("#status")
        expect(sentence).to_contain_text("could not be loaded", timeout=180_000)
        assert reason in sentence.inner_text()
        page.context.close()


def test_opened_as_a_file_it_names_the_command(folder: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto((folder / "index.html").as_uri())
    expect(page.locator("#status")).to_be_visible()
    assert "run python -m http.server in its folder" in page.locator("#status").inner_text()
    expect(page.locator("progress")).to_be_hidden()
    assert page.locator("h1").count() == 1
    page.context.close()


WITHOUT_TORCH = """
import sys
for name in ("torch", "torchvision", "onnx", "onnxscript"):
    sys.modules[name] = None
from captioner.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_page_of_a_model_with_graphs_needs_no_torch(browser: Browser, tmp_path: Path) -> None:
    expected = captioner.load().caption(DEMO)
    export_model(load_model(model_folder()), tmp_path / "graphs", "float16")
    for model in ("default", str(tmp_path / "graphs")):
        folder = tmp_path / f"page of {Path(model).name}"
        command = [sys.executable, "-c", WITHOUT_TORCH, "export", model, str(folder), "--page"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        with serving(folder) as port, opening(browser) as opened:
            page = opened(f"http://localhost:{port}/")
            ready(page)
            add(page, file("a.png", DEMO.read_bytes()))
            assert page.locator(".words").first.inner_text() == expected.text
    assert captioner.load(tmp_path / "page of default").caption(DEMO).text == expected.text


def test_the_page_is_small_and_has_what_it_needs(folder: Path) -> None:
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 37_000_000
    assert "MIT License" in (folder / "onnxruntime-web.LICENSE.txt").read_text()
    files = json.loads((folder / "captioner.json").read_text())["files"]
    known = {".html", ".css", ".js", ".json", ".onnx", ".wasm", ".jpg", ".md", ".txt"}
    assert {path.suffix for path in folder.iterdir()} <= known  # Every server has their types.
    assert set(files) == {"encoder.onnx", "start.onnx", "step.onnx"}
