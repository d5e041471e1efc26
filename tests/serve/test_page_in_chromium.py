"""The page in a real browser: what a person does with it, and what comes of that."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright
from serve_samples import Running, photo_bytes, running

from captioner.caption import load_model
from captioner.render import overlay

CHROMIUM = shutil.which("chromium")

pytestmark = [
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


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser, server: Running) -> Iterator[Open]:
    """Opens the page; in the end, nothing came from elsewhere and nothing went wrong unseen."""
    contexts: list[BrowserContext] = []
    asked: list[str] = []
    faults: list[str] = []

    def open_page(address: str = server.address, **how: Any) -> Page:
        context = browser.new_context(**{**DESK, "reduced_motion": "reduce", **how})
        context.set_default_timeout(120_000)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "console",
            lambda said: faults.append(said.text) if "Security Policy" in said.text else None,
        )
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
    assert asked
    assert [
        url for url in asked if not url.startswith(("http://127.0.0.1:", "blob:", "data:"))
    ] == []


def photo_file(seed: int = 0, name: str = "photo.png") -> Any:
    return {"name": name, "mimeType": "image/png", "buffer": photo_bytes(seed, (240, 180))}


def add(page: Page, *files: Any) -> Locator:
    """Choose photos, and wait until each has its captions; gives the first one's card."""
    page.set_input_files("#files", list(files))
    captioned(page, len(files))
    return page.locator(".item").first


def captioned(page: Page, count: int) -> None:
    expect(page.locator("[data-state=done]")).to_have_count(count, timeout=120_000)


def words_of(card: Locator) -> list[str]:
    return card.locator(".caption").first.locator(".word").all_inner_texts()


def canvas_of(card: Locator) -> Image.Image:
    """What is drawn over the photo."""
    address = card.locator("canvas").evaluate("canvas => canvas.toDataURL('image/png')")
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB")


def preview_of(card: Locator) -> Image.Image:
    address = card.locator("img").get_attribute("src") or ""
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB")


def far(one: Image.Image, other: Image.Image) -> float:
    """The mean difference of two pictures, in steps of 256."""
    values = [np.asarray(each, dtype=float) for each in (one, other.resize(one.size))]
    return float(np.abs(values[0] - values[1]).mean())


def test_a_photo_gets_its_caption_and_a_word_its_map(
    open_page: Open, saved_models: tuple[Path, Path]
) -> None:
    page = open_page()
    expect(page.locator("#settings")).to_be_hidden()
    card = add(page, photo_file(1))
    model = load_model(saved_models[0])
    (expected,) = model.caption([photo_bytes(1, (240, 180))])
    assert words_of(card) == list(expected.words)
    expect(card.locator("canvas")).to_be_hidden()
    assert expected.region is not None
    for number in (0, len(expected.words) - 1):
        word = card.locator(".word").nth(number)
        word.hover()
        expect(card.locator("canvas")).to_be_visible()
        expect(word).to_have_class("word shown")
        drawn = canvas_of(card)
        preview = preview_of(card)
        scale = drawn.width / preview.width
        region = tuple(edge * scale for edge in expected.region)
        large = preview.resize(drawn.size, Image.Resampling.BICUBIC)
        right = overlay(large, expected.attention[number].numpy(), region)  # type: ignore[arg-type]
        other = overlay(large, expected.attention[number].flip(0).numpy(), region)  # type: ignore[arg-type]
        assert far(drawn, right) < 2.5 < far(drawn, other)
        share = np.exp(expected.word_log_probabilities[number])
        expect(card.locator(".likely")).to_have_text(
            f"“{expected.words[number]}”: {100 * share:.0f} % likely"
        )
    page.mouse.move(5, 5)
    expect(card.locator("canvas")).to_be_hidden()


def test_the_strength_is_that_of_the_slider(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1))
    card.locator(".word").first.click()  # Keeps it.
    strong = canvas_of(card)
    page.locator("#strength").fill("0")
    expect(page.locator("#strength-shown")).to_have_text("0 %")
    none = canvas_of(card)
    assert far(none, preview_of(card)) < 2.5
    assert far(strong, none) > 10


def test_it_works_with_the_keyboard_alone(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1), photo_file(2))
    words = card.locator(".word")
    last = words.count() - 1
    page.locator("#clear").focus()
    page.keyboard.press("Tab")
    expect(words.nth(0)).to_be_focused()
    assert words.nth(0).evaluate("word => getComputedStyle(word).outlineStyle") == "solid"
    expect(card.locator("canvas")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(words.nth(1)).to_be_focused()
    expect(words.nth(1)).to_have_class("word shown")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    expect(words.nth(last)).to_be_focused()
    page.keyboard.press("Enter")
    expect(words.nth(last)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("ArrowDown")
    other = page.locator(".item").nth(1).locator(".word")
    expect(other.nth(min(last, other.count() - 1))).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".word.shown")).to_have_count(0)
    expect(card.locator("canvas")).to_be_hidden()


def test_playing_runs_through_the_words_in_order(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1))
    count = len(words_of(card))
    card.evaluate(
        "card => { window.seen = [];"
        " card.addEventListener('look', (event) => window.seen.push(event.detail?.word ?? -1)); }"
    )
    play = card.locator(".play")
    play.click()
    expect(play).to_have_text("Stop")
    expect(play).to_have_text("Play")
    assert page.evaluate("window.seen") == [*range(count), -1]
    play.click()
    play.click()
    expect(play).to_have_text("Play")
    expect(card.locator("canvas")).to_be_hidden()


def test_beam_captions_and_temperature_are_used(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1))
    page.evaluate(
        "() => { const real = window.fetch; window.asked = [];"
        "window.fetch = (address, how) => {"
        "  if (how.body) window.asked.push(Object.fromEntries(how.body));"
        "  return real(address, how); }; }"
    )
    page.locator("#captions").fill("4")
    page.locator("#captions").dispatch_event("change")
    expect(page.locator("#beam-shown")).to_have_text("4")  # It holds as many.
    expect(card.locator(".caption")).to_have_count(4)
    page.locator("#beam").fill("2")
    page.locator("#beam").dispatch_event("change")
    expect(page.locator("#captions-shown")).to_have_text("2")
    expect(card.locator(".caption")).to_have_count(2)
    expect(page.locator("#temperature")).to_be_hidden()
    page.locator("label", has_text="by chance").click()
    expect(page.locator("#beam")).to_be_hidden()
    page.locator("#temperature").fill("1.7")
    page.locator("#temperature").dispatch_event("change")
    page.locator("#again").click()
    common = {"photo": {}, "preview": "true"}
    drawn = {**common, "sample": "true", "n_best": "2", "temperature": "1.7", "seed": "1"}
    while (asked := page.evaluate("window.asked"))[-1] != drawn:
        page.wait_for_timeout(50)  # A setting is used when it has stayed as it is for a moment.
    assert asked[:2] == [
        {**common, "sample": "false", "n_best": "4", "beam": "4"},
        {**common, "sample": "false", "n_best": "2", "beam": "2"},
    ]
    captioned(page, 1)


def test_photos_are_dropped_and_pasted(open_page: Open) -> None:
    page = open_page()
    encoded = base64.b64encode(photo_bytes(1)).decode()
    carried = page.evaluate_handle(
        """encoded => {
          const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
          const carried = new DataTransfer();
          for (const name of ["one.png", "two.png"]) {
            carried.items.add(new File([bytes], name, { type: "image/png" }));
          }
          return carried;
        }""",
        encoded,
    )
    page.dispatch_event("body", "dragenter", {"dataTransfer": carried})
    expect(page.locator("#veil")).to_be_visible()
    page.dispatch_event("body", "drop", {"dataTransfer": carried})
    expect(page.locator("#veil")).to_be_hidden()
    captioned(page, 2)
    page.evaluate(
        "carried => document.body.dispatchEvent(new ClipboardEvent("
        "'paste', { clipboardData: carried, bubbles: true, cancelable: true }))",
        carried,
    )
    captioned(page, 4)
    assert page.locator(".file").all_inner_texts() == ["one.png", "two.png"] * 2


def test_a_photo_is_taken(open_page: Open) -> None:
    page = open_page()
    page.locator("#photograph").click()
    expect(page.locator("#camera")).to_be_visible()
    page.locator("#leave").click()
    expect(page.locator("#camera")).to_be_hidden()
    page.locator("#photograph").click()
    page.wait_for_timeout(500)  # The first picture of the camera.
    page.locator("#release").click()
    captioned(page, 1)
    expect(page.locator("#camera")).to_be_hidden()
    assert page.locator("#view").evaluate("view => view.srcObject") is None
    # A telephone has its own camera program.
    telephone = open_page(**TELEPHONE)
    with telephone.expect_file_chooser() as chooser:
        telephone.locator("#photograph").tap()
    assert chooser.value.element.get_attribute("capture") == "environment"


def test_the_example_and_the_way_back(open_page: Open) -> None:
    page = open_page()
    page.locator("#example").click()
    captioned(page, 1)
    expect(page.locator(".hero").first).to_be_hidden()
    page.locator(".remove:visible").click()
    expect(page.locator(".item")).to_have_count(0)
    expect(page.locator("#example")).to_be_visible()


def test_downloads_are_the_files_of_the_package(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1, "my dog.png"))
    words = words_of(card)
    contents = {}
    for kind in ("png", "gif", "html", "json"):
        with page.expect_download() as download:
            card.locator(f"[data-format={kind}]").click()
        assert download.value.suggested_filename == f"my dog-captions.{kind}"
        contents[kind] = Path(download.value.path()).read_bytes()
    for kind in ("png", "gif"):
        with Image.open(io.BytesIO(contents[kind])) as picture:
            assert (picture.format or "").lower() == kind
    assert contents["html"].count(b'class="word"') == len(words)
    record = json.loads(contents["json"])
    assert record["captions"][0]["words"] == words
    assert "preview" not in record
    add(page, photo_file(2))
    captioned(page, 2)
    with page.expect_download() as download:
        page.locator("#all-html").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert text.count("<article") == 2
    with page.expect_download() as download:
        page.locator("#all-json").click()
    assert len(json.loads(Path(download.value.path()).read_bytes())) == 2


def test_the_self_contained_page_shows_maps_as_well(open_page: Open, tmp_path: Path) -> None:
    page = open_page()
    card = add(page, photo_file(1))
    with page.expect_download() as download:
        card.locator("[data-format=html]").click()
    path = tmp_path / "page.html"
    download.value.save_as(path)
    alone = page.context.browser
    assert alone is not None
    context = alone.new_context(reduced_motion="reduce")
    saved = context.new_page()
    saved.goto(path.as_uri())
    saved.locator(".word").first.hover()
    expect(saved.locator("canvas")).to_be_visible()
    expect(saved.locator(".word").first).to_have_class("word shown")
    context.close()


def test_what_comes_from_outside_is_shown_as_text(open_page: Open) -> None:
    page = open_page()
    name = "<img src=x onerror=window.bad=1>.png"
    add(page, photo_file(1, name))
    expect(page.locator(".file")).to_have_text(name)
    assert page.evaluate("window.bad") is None
    page.locator("#tab-sentences").click()
    page.fill("#text", "<img src=x onerror=window.bad=1>")
    page.keyboard.press("Enter")
    expect(page.locator(".translation")).to_have_count(1)
    assert page.locator(".translation img").count() == 0
    assert page.evaluate("window.bad") is None


def test_a_bad_photo_says_why_and_the_others_go_on(open_page: Open) -> None:
    page = open_page()
    bad = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no photo"}
    page.set_input_files("#files", [photo_file(1), bad, photo_file(2)])
    captioned(page, 2)
    failed = page.locator("[data-state=failed]")
    expect(failed.locator(".state")).to_contain_text("notes.txt is not an image that can be read")
    expect(failed.locator(".downloads")).to_be_hidden()


def test_what_it_says_is_said_to_those_who_do_not_see_it(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1))
    text = " ".join(words_of(card))
    expect(page.locator("#said")).to_contain_text(f"photo.png: {text}.")
    assert page.locator("#said").get_attribute("aria-live") == "polite"
    assert card.locator("img").get_attribute("alt") == text
    page.locator("#tab-sentences").click()
    for one in page.locator("button, input, textarea, [role=tab], [role=group], section").all():
        named = one.evaluate(
            "one => Boolean(one.ariaLabel || one.textContent.trim() || one.labels?.length"
            " || document.getElementById(one.getAttribute('aria-labelledby')))"
        )
        assert named, one.evaluate("one => one.outerHTML")


def test_a_telephone_has_all_of_it(open_page: Open) -> None:
    page = open_page(**TELEPHONE)
    card = add(page, photo_file(1), photo_file(2))
    word = card.locator(".word").nth(1)
    word.tap()
    expect(card.locator("canvas")).to_be_visible()
    expect(word).to_have_attribute("aria-pressed", "true")
    page.locator("#captions").fill("3")
    page.locator("#captions").dispatch_event("change")
    expect(card.locator(".caption")).to_have_count(3)
    captioned(page, 2)
    lowest = card.locator(".caption").nth(2).locator(".word").first
    lowest.tap()
    photo, tapped = card.locator(".stage").bounding_box(), lowest.bounding_box()
    assert photo is not None
    assert tapped is not None
    assert photo["y"] >= 0  # It stays in sight,
    assert tapped["y"] > photo["y"] + photo["height"]  # and above the word.


@pytest.mark.parametrize("how", [DESK, TELEPHONE, {"viewport": {"width": 320, "height": 640}}])
def test_nothing_is_wider_than_the_screen(open_page: Open, how: dict[str, Any]) -> None:
    page = open_page(**how)
    width = how["viewport"]["width"]

    def widest() -> int:
        return int(page.evaluate("document.documentElement.scrollWidth"))

    assert widest() <= width
    add(page, photo_file(1, "a-name-without-a-space-" * 8 + ".png"), photo_file(2))
    page.locator(".word").first.click()
    assert widest() <= width
    page.locator("#tab-sentences").click()
    page.fill("#text", "The dog sees a man, and runs. " * 3)
    page.keyboard.press("Enter")
    expect(page.locator(".translation")).to_have_count(1)
    assert widest() <= width


def test_light_and_dark_are_those_of_the_system(open_page: Open) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page = open_page(color_scheme=scheme)
        for place, name in (("html", "backgroundColor"), ("body", "color")):
            colour = page.locator(place).evaluate(f"one => getComputedStyle(one).{name}")
            levels = [int(part) for part in colour[4:-1].split(",")]
            colours[scheme, name] = sum(levels) / 3
    assert colours["light", "backgroundColor"] > 200 > 80 > colours["light", "color"]
    assert colours["dark", "color"] > 200 > 80 > colours["dark", "backgroundColor"]


def test_motion_is_there_only_where_it_is_wanted(open_page: Open) -> None:
    for motion, expected in (("no-preference", "come"), ("reduce", "none")):
        page = open_page(reduced_motion=motion)
        card = add(page, photo_file(1))
        name = card.evaluate("card => getComputedStyle(card).animationName")
        assert name == expected


def test_a_sentence_is_translated_and_its_alignment_shown(open_page: Open) -> None:
    page = open_page()
    page.locator("#tab-photos").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-sentences")).to_be_focused()
    expect(page.locator("#photos")).to_be_hidden()
    page.locator("#translations-wanted").fill("2")
    page.locator("#translations-wanted").dispatch_event("change")
    page.fill("#text", "The dog sees a man.\nDogs run!")
    with page.expect_response("**/api/translate") as answered:
        page.get_by_role("button", name="Translate").click()
    translations = answered.value.json()["translations"]
    cards = page.locator(".translation")
    expect(cards).to_have_count(2)
    for card, found in zip(cards.all(), translations, strict=True):
        for place, version in enumerate(found["translations"]):
            card.locator(".other").nth(place).click()
            expect(card.locator(".whole")).to_have_text(version["translation"])
            assert card.locator(".target .token").all_inner_texts() == version["tokens"]
            cells = card.locator(".cell").all_inner_texts()
            weights = [f"{weight:.2f}" for row in version["alignment"] for weight in row]
            differences = [abs(float(a) - float(b)) for a, b in zip(cells, weights, strict=True)]
            assert max(differences) <= 0.0101
    card, version = cards.first, translations[0]["translations"][1]
    card.locator(".target .token").nth(1).focus()
    row = version["alignment"][1]
    lit = card.locator(".source .token").evaluate_all(
        "tokens => tokens.map((token) => parseFloat(token.style.getPropertyValue('--weight')))"
    )
    assert lit == pytest.approx([100 * weight for weight in row], abs=0.51)
    with page.expect_download() as download:
        card.locator("[data-format=json]").click()
    assert json.loads(Path(download.value.path()).read_bytes()) == translations[0]


def test_without_a_translator_there_is_no_second_tab(
    open_page: Open, saved_models: tuple[Path, Path]
) -> None:
    with running("--model", str(saved_models[0])) as server:
        page = open_page(server.address)
        expect(page.locator("#tabs")).to_be_hidden()
        server.process.terminate()
        server.process.wait()
        page.set_input_files("#files", [photo_file(1)])
        expect(page.locator("[data-state=failed] .state")).to_contain_text("still running?")
