"""The page in a real browser: the tab of photos."""

from __future__ import annotations

import base64
import io
import json
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
    far,
    needs_chromium,
    photo_file,
    preview_of,
    words_of,
)
from PIL import Image
from playwright.sync_api import Page, expect
from serve_samples import photo_bytes

from captioner.caption import load_model
from captioner.render import overlay

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


def test_playing_runs_through_the_words_in_order(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1))
    count = len(words_of(card))
    card.evaluate(
        "card => { window.seen = [];"
        " card.addEventListener('wordshown',"
        " (event) => window.seen.push(event.detail?.word ?? -1)); }"
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


def wait_until(page: Page, condition: str) -> None:
    """As `wait_for_function`, which a page that forbids `eval` stops at its second look."""
    for _ in range(300):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    pytest.fail(f"not so within 30 seconds: {condition}")


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
    # Two clicks open one stream, which ends.
    page.evaluate(
        """() => {
          const devices = navigator.mediaDevices;
          const open = devices.getUserMedia.bind(devices);
          window.streams = [];
          devices.getUserMedia = async (wanted) => {
            window.streams.push(await open(wanted));
            return window.streams.at(-1);
          };
          for (const _ of "ab") document.getElementById("photograph").click();
        }"""
    )
    expect(page.locator("#camera")).to_be_visible()
    page.locator("#leave").click()
    ended = "window.streams.map((each) => each.getTracks()[0].readyState).join() === 'ended'"
    wait_until(page, ended)
    # A telephone has its own camera program.
    telephone = open_page(**TELEPHONE)
    with telephone.expect_file_chooser() as chooser:
        telephone.locator("#photograph").tap()
    assert chooser.value.element.get_attribute("capture") == "environment"


def test_the_example_and_the_way_back(open_page: Open) -> None:
    page = open_page()
    page.route("**/demo.jpg", lambda route: route.abort())
    page.locator("#example").click()
    expect(page.get_by_text("does not answer; is it still running?")).to_be_visible()
    page.unroute("**/demo.jpg")
    page.locator("#example").click()
    captioned(page, 1)
    expect(page.locator(".hero").first).to_be_hidden()
    page.locator(".remove:visible").click()
    expect(page.locator(".item")).to_have_count(0)
    expect(page.locator("#example")).to_be_visible()


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
