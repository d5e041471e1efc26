"""The page in a real browser: the tab of photos."""

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from chromium_samples import (
    TELEPHONE,
    Open,
    add,
    canvas_of,
    captioned,
    downloaded,
    needs_chromium,
    photo_file,
    preview_of,
    words_of,
)
from PIL import Image
from playwright.sync_api import Page, expect
from serve_samples import far, photo_bytes, running

from captioner.caption.folder import load_model
from captioner.render.overlay import overlay

pytestmark = needs_chromium


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
        maps = expected.attention[number]
        right, late, low = (
            far(drawn, overlay(large, each.numpy(), region))  # type: ignore[arg-type]
            for each in (maps, maps.roll(1, 1), maps.roll(1, 0))
        )
        assert right < 1 < 4 < min(late, low)
        share = np.exp(expected.word_log_probabilities[number])
        expect(card.locator(".probability")).to_have_text(
            f"“{expected.words[number]}”: {100 * share:.0f} % likely"
        )
    page.mouse.move(5, 5)
    expect(card.locator("canvas")).to_be_hidden()


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
    page.keyboard.press("Tab")  # A caption is one stop.
    expect(card.locator(".play").first).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(words.nth(last)).to_be_focused()
    page.keyboard.press("ArrowDown")
    other = page.locator(".item").nth(1).locator(".word")
    expect(other.nth(min(last, other.count() - 1))).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".word.shown")).to_have_count(0)
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
    page.locator("label", has_text="sampling").click()
    expect(page.locator("#beam")).to_be_hidden()
    page.locator("#temperature").fill("1.7")
    page.locator("#temperature").dispatch_event("change")
    page.locator("#resample").click()
    common = {"photo": {}, "preview": "true"}
    drawn = {**common, "sample": "true", "n_best": "2", "temperature": "1.7", "seed": "1"}
    while (asked := page.evaluate("window.asked"))[-1] != drawn:
        page.wait_for_timeout(50)  # A setting is used when it has stayed as it is for a moment.
    assert asked[:2] == [
        {**common, "sample": "false", "n_best": "4", "beam": "4"},
        {**common, "sample": "false", "n_best": "2", "beam": "2"},
    ]
    captioned(page, 1)


def test_captions_are_shown_in_another_language(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1))
    words = card.locator(".words")
    english = words.text_content()
    choice = page.get_by_label("Language")
    assert choice.locator("option").all_text_contents() == ["English", "Deutsch"]
    choice.select_option("de")
    expect(words).to_have_attribute("lang", "de")
    expect(card.locator(".score")).to_contain_text("“")  # What was translated.
    assert words.text_content() != english
    choice.select_option("")
    expect(words).to_have_attribute("lang", "en")
    expect(words).to_have_text(english or "")


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


def test_a_reload_keeps_the_results_and_their_language(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1, "one.png"), photo_file(2, "two.png"))
    for language in ("de", "en"):
        value = "" if language == "en" else language
        page.get_by_label("Language").select_option(value)
        expect(page.locator(f".words[lang={language}]")).to_have_count(2)
        captioned(page, 2)
        words = words_of(card)
        page.reload()
        captioned(page, 2)
        expect(page.locator(f".words[lang={language}]")).to_have_count(2)
        expect(page.get_by_label("Language")).to_have_value(value)
        assert words_of(card) == words
        assert page.locator(".file").all_inner_texts() == ["one.png", "two.png"]
    card.locator(".remove").click()
    page.reload()
    captioned(page, 1)


def test_downloads_are_the_files_of_the_package(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1, "my dog.png"))
    words = words_of(card)
    contents = {}
    for kind in ("png", "gif", "html", "json"):
        name, contents[kind] = downloaded(page, card.locator(f"[data-format={kind}]"))
        assert name == f"my dog-captions.{kind}"
    for kind in ("png", "gif"):
        with Image.open(io.BytesIO(contents[kind])) as picture:
            assert (picture.format or "").lower() == kind
    assert contents["html"].count(b'class="word"') == len(words)
    record = json.loads(contents["json"])
    assert record["captions"][0]["words"] == words
    assert "preview" not in record


# All photos, downloaded as one page.


def all_as_a_page(page: Page, path: Path) -> str:
    name, content = downloaded(page, page.locator("#all-html"))
    assert name == "captions.html"
    path.write_bytes(content)
    return content.decode()


@pytest.mark.parametrize("most", [2, 16])
def test_all_as_a_page_holds_more_photos_than_a_request(
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


def test_all_as_a_page_says_how_many_are_in_it_and_why_one_is_not(
    open_page: Open, tmp_path: Path
) -> None:
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
