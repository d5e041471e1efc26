"""The page in a real browser: the tab of photos."""

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
    captioned,
    downloaded,
    needs_chromium,
    photo_file,
    picture,
    words_of,
)
from PIL import Image
from playwright.sync_api import expect
from serve_samples import far, photo_bytes, running

from captioner.caption.folder import load_model
from captioner.render.overlay import overlay

pytestmark = needs_chromium


def test_a_photo_gets_its_caption_and_a_word_its_map(
    open_page: Open, saved_models: tuple[Path, Path]
) -> None:
    page = open_page()
    card = add(page, photo_file(1))
    (expected,) = load_model(saved_models[0]).caption([photo_bytes(1, (240, 180))])
    assert words_of(card) == list(expected.words)
    expect(card.locator("canvas")).to_be_hidden()
    for number in (0, len(expected.words) - 1):
        word = card.locator(".word").nth(number)
        word.hover()
        expect(card.locator("canvas")).to_be_visible()
        expect(word).to_have_class("word shown")
        drawn = picture(card.locator("canvas").evaluate("each => each.toDataURL('image/png')"))
        preview = picture(card.locator("img").get_attribute("src") or "")
        region = tuple(edge * drawn.width / preview.width for edge in expected.region or ())
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
    expect(words.nth(1)).to_have_class("word shown")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(words.nth(last)).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Tab")  # A caption is one stop.
    expect(card.locator(".play").first).to_be_focused()
    page.keyboard.press("Shift+Tab")
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
    for name, value, other in (("captions", "4", "beam"), ("beam", "2", "captions")):
        page.locator(f"#{name}").fill(value)
        page.locator(f"#{name}").dispatch_event("change")
        expect(page.locator(f"#{other}-shown")).to_have_text(value)  # A beam holds as many.
        expect(card.locator(".caption")).to_have_count(int(value))
    page.locator("label", has_text="sampling").click()
    page.locator("#temperature").fill("1.7")
    page.locator("#temperature").dispatch_event("change")
    page.locator("#resample").click()
    common = {"photo": {}, "preview": "true"}
    drawn = {**common, "sample": "true", "n_best": "2", "temperature": "1.7", "seed": "1"}
    while (asked := page.evaluate("window.asked"))[-1] != drawn:
        page.wait_for_timeout(50)  # A setting is used when it has stayed as it is for a moment.
    plain = {**common, "sample": "false"}
    assert asked[:2] == [{**plain, "n_best": each, "beam": each} for each in ("4", "2")]
    captioned(page, 1)


def test_photos_are_dropped_pasted_and_taken(open_page: Open) -> None:
    page = open_page()
    carried = page.evaluate_handle(
        """encoded => {
          const bytes = Uint8Array.from(atob(encoded), (letter) => letter.charCodeAt(0));
          const carried = new DataTransfer();
          for (const name of ["one.png", "two.png"]) {
            carried.items.add(new File([bytes], name, { type: "image/png" }));
          }
          return carried;
        }""",
        base64.b64encode(photo_bytes(1)).decode(),
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
    page.locator("#photograph").click()
    expect(page.locator("#camera")).to_be_visible()
    page.wait_for_timeout(500)  # The first picture of the camera.
    page.locator("#release").click()
    captioned(page, 5)
    expect(page.locator("#camera")).to_be_hidden()
    assert page.locator("#view").evaluate("view => view.srcObject") is None
    telephone = open_page(**TELEPHONE)  # It has its own camera program.
    with telephone.expect_file_chooser() as chooser:
        telephone.locator("#photograph").tap()
    assert chooser.value.element.get_attribute("capture") == "environment"


def test_captions_in_another_language_and_a_reload_keeps_them(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1, "one.png"), photo_file(2, "two.png"))
    english = words_of(card)
    choice = page.get_by_label("Language")
    assert choice.locator("option").all_text_contents() == ["English", "Deutsch"]
    for language, value in (("de", "de"), ("en", "")):
        choice.select_option(value)
        expect(page.locator(f".words[lang={language}]")).to_have_count(2)
        captioned(page, 2)
        original = expect(card.locator(".score"))
        (original.to_contain_text if value else original.not_to_contain_text)("“")
        words = words_of(card)
        assert (words == english) == (language == "en")
        page.reload()
        captioned(page, 2)
        expect(page.locator(f".words[lang={language}]")).to_have_count(2)
        expect(choice).to_have_value(value)
        assert words_of(card) == words
    card.locator(".remove").click()
    page.reload()
    captioned(page, 1)
    assert page.locator(".file").all_inner_texts() == ["two.png"]


def test_downloads_are_the_files_of_the_package(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1, "my dog.png"))
    words = words_of(card)
    contents = {}
    for kind in ("png", "gif", "html", "json"):
        name, contents[kind] = downloaded(page, card.locator(f"[data-format={kind}]"))
        assert name == f"my dog-captions.{kind}"
    for kind in ("png", "gif"):
        assert (Image.open(io.BytesIO(contents[kind])).format or "").lower() == kind
    assert contents["html"].count(b'class="word"') == len(words)
    record = json.loads(contents["json"])
    assert record["captions"][0]["words"] == words
    assert "preview" not in record


@pytest.mark.parametrize("most", [2, 16])
def test_all_as_a_page_holds_more_photos_than_a_request(
    open_page: Open, saved_models: tuple[Path, Path], tmp_path: Path, most: int
) -> None:
    files = [photo_file(seed, f"<main> {seed}.png") for seed in range(8)]
    limit = 1.1 * max(len(each["buffer"]) for each in files) / 1024**2
    limits = ("--max-photos", str(most), "--max-upload", str(limit))
    with running(saved_models[0], *limits) as server:
        page = open_page(server.address)
        bad = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no photo"}
        page.set_input_files("#files", [*files, bad])
        captioned(page, 8)
        failed = page.locator("[data-state=failed]")
        expect(failed.locator(".state")).to_contain_text("notes.txt is not an image that can be")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        name, content = downloaded(page, page.locator("#all-html"))
    sentence = "8 of 9 photos are in the file: the others have no caption"
    expect(page.locator("#error-message")).to_have_text(sentence)
    failed.locator(".remove").click()
    assert len(json.loads(downloaded(page, page.locator("#all-json"))[1])) == 8
    assert sum(url.endswith("/api/overlay") for url in asked) > 1
    (tmp_path / name).write_bytes(content)
    page.goto((tmp_path / "captions.html").as_uri())
    assert page.locator("figcaption").all_inner_texts() == [each["name"] for each in files]
    assert page.locator("main, html").count() == 2
    for number in (0, 7):  # Of the first request and of the last.
        card = page.locator(f"#item-{number}")
        card.locator(".word").first.hover()
        expect(card.locator("canvas")).to_be_visible()
