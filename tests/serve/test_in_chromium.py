"""The page in a real browser: photos, sentences, screens of all sizes, the token, other pages."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium_samples import (
    DESK,
    TELEPHONE,
    Open,
    add,
    captioned,
    downloaded,
    needs_chromium,
    photo_file,
    picture,
    serving,
    words_of,
)
from PIL import Image
from playwright.sync_api import Browser, expect
from samples import photo_bytes, save_photo
from serve_samples import far, running

from captioner.caption.folder import load_model
from captioner.render.overlay import overlay
from captioner.render.page import static_file
from captioner.vision.digest import photo_digest

pytestmark = needs_chromium


def test_a_photo_gets_its_caption_a_word_its_map_and_downloads(
    open_page: Open, saved_models: tuple[Path, Path]
) -> None:
    page = open_page()
    card = add(page, photo_file(1, "my dog.png"))
    (expected,) = load_model(saved_models[0]).caption([photo_bytes(1, (240, 180))])
    assert words_of(card) == list(expected.words)
    expect(card.locator("canvas")).to_be_hidden()
    assert expected.word_confidence is not None
    for number in (0, len(expected.words) - 1):
        word = card.locator(".word").nth(number)
        word.hover()
        expect(card.locator("canvas")).to_be_visible()
        expect(word).to_have_class("word shown")
        drawn = picture(card.locator("canvas").evaluate("each => each.toDataURL('image/png')"))
        preview = picture(card.locator("img").get_attribute("src") or "")
        region = tuple(edge * drawn.width / preview.width for edge in expected.region or ())
        large = preview.resize(drawn.size, Image.Resampling.BICUBIC)
        shown = expected.attention[number]
        assert far(drawn, overlay(large, shown, region)) < 1  # type: ignore[arg-type]
        late = np.roll(shown, 1, axis=1)
        assert far(drawn, overlay(large, late, region)) > 4  # type: ignore[arg-type]
        share = expected.word_confidence[number]
        expect(card.locator(".probability")).to_contain_text(f": {100 * share:.0f} % likely")
    page.mouse.move(5, 5)
    expect(card.locator("canvas")).to_be_hidden()
    starts = {"png": b"\x89PNG", "gif": b"GIF89a", "html": b"<!DOCTYPE html>", "json": b'{"name"'}
    for kind, start in starts.items():
        name, content = downloaded(page, card.locator(f"[data-format={kind}]"))
        assert (name, content[: len(start)]) == (f"my dog-captions.{kind}", start)
    assert json.loads(content)["captions"][0]["words"] == list(expected.words)


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
    model = page.request.get(f"{page.url}api/model").json()
    model["captioner"]["can_sample"] = False
    page.route("**/api/model", lambda route: route.fulfill(json=model))
    page.reload()
    expect(page.locator("#decoding-setting")).to_be_hidden()


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
    page.dispatch_event("body", "drop", {"dataTransfer": carried})
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


def test_all_as_a_page_holds_more_photos_than_a_request(
    open_page: Open, saved_models: tuple[Path, Path], tmp_path: Path
) -> None:
    files = [photo_file(seed, f"<main> {seed}.png") for seed in range(8)]
    limit = 1.1 * max(len(each["buffer"]) for each in files) / 1024**2
    limits = ("--max-photos", "2", "--max-upload", str(limit))
    with running(saved_models[0], *limits) as server:
        page = open_page(server.address)
        bad = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"no photo"}
        page.set_input_files("#files", [*files, bad])
        captioned(page, 8)
        reason = page.locator("[data-state=failed] .state")
        expect(reason).to_contain_text("notes.txt is not an image that can be read")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        name, content = downloaded(page, page.locator("#all-html"))
    sentence = "8 of 9 photos are in the file: the others have no caption"
    expect(page.locator("#error-message")).to_have_text(sentence)
    assert len(json.loads(downloaded(page, page.locator("#all-json"))[1])) == 8
    assert sum(url.endswith("/api/overlay") for url in asked) > 1
    (tmp_path / name).write_bytes(content)
    page.goto((tmp_path / "captions.html").as_uri())
    assert page.locator(".file").all_inner_texts() == [each["name"] for each in files]


@pytest.mark.parametrize("how", [DESK, TELEPHONE, {"viewport": {"width": 320, "height": 640}}])
def test_it_fits_screens_and_tells_screen_readers(open_page: Open, how: dict[str, Any]) -> None:
    page = open_page(**how)
    assert page.locator("h1").all_inner_texts() == ["captioner"]
    too_wide = "document.documentElement.scrollWidth > innerWidth"
    assert not page.evaluate(too_wide)
    name = "<img src=x onerror=window.bad=1>" + "a-name-without-a-space-" * 8 + ".png"
    card = add(page, photo_file(1, name), photo_file(2))
    expect(page.get_by_text("Tap a word")).to_be_visible(visible=how is TELEPHONE)
    expect(page.get_by_text("Point at a word")).to_be_visible(visible=how is not TELEPHONE)
    text = " ".join(words_of(card))
    expect(page.locator("#announcements")).to_contain_text(".png: ")
    assert card.locator("img").get_attribute("alt") == text
    expect(card.locator(".file")).to_have_text(name)
    if page.locator("#show-more").is_visible():
        page.locator("#show-more").click()
    page.locator("#captions").fill("3")
    page.locator("#captions").dispatch_event("change")
    expect(card.locator(".caption")).to_have_count(3)
    captioned(page, 2)
    lowest = card.locator(".caption").nth(2).locator(".word").first
    (lowest.tap if how is TELEPHONE else lowest.hover)()
    expect(card.locator("canvas")).to_be_visible()
    photo, word = card.locator(".stage").bounding_box(), lowest.bounding_box()
    if how is TELEPHONE:  # The photo stays in sight and above the word.
        assert 0 <= photo["y"] < word["y"] - photo["height"]
    assert not page.evaluate(too_wide)
    page.locator("#tab-sentences").click()
    name, tabs = page.locator(".name").bounding_box(), page.locator("#tabs").bounding_box()
    assert name["x"] + name["width"] <= tabs["x"]
    assert tabs["x"] + tabs["width"] <= page.evaluate("document.body.getBoundingClientRect().right")
    text = "<img src=x onerror=window.bad=1> The dog sees a man, and runs. " * 3 + "n" * 80
    page.fill("#text", f"{text}\n" * 17)  # More than a request may have.
    page.keyboard.press("Enter")
    expect(page.locator(".translation")).to_have_count(17)
    assert page.locator(".translation img").count() == 0
    assert page.evaluate("window.bad") is None
    assert not page.evaluate(too_wide)
    for one in page.locator("button, input, textarea, [role=tab], [role=group], section").all():
        assert one.evaluate(
            "one => Boolean(one.ariaLabel || one.textContent.trim() || one.labels?.length"
            " || document.getElementById(one.getAttribute('aria-labelledby')))"
        ), one.evaluate("one => one.outerHTML")


def test_a_sentence_is_translated_and_its_alignment_shown(open_page: Open) -> None:
    page = open_page()
    page.locator("#tab-photos").focus()
    page.keyboard.press("ArrowRight")
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
            card.locator(".alternative").nth(place).click()
            expect(card.locator(".best")).to_have_text(version["translation"])
            assert card.locator(".target .token").all_inner_texts() == version["words"]
            cells = [float(cell) for cell in card.locator(".cell").all_inner_texts()]
            weights = [weight for row in version["word_alignment"] for weight in row]
            assert cells == pytest.approx(weights, abs=0.0101)
    card, row = cards.first, translations[0]["translations"][1]["word_alignment"][1]
    card.locator(".target .token").nth(1).focus()
    lit = card.locator(".source .token").evaluate_all(
        "tokens => tokens.map((token) => parseFloat(token.style.getPropertyValue('--weight')))"
    )
    assert lit == pytest.approx([100 * weight for weight in row], abs=0.51)
    assert json.loads(downloaded(page, card.locator("[data-format=json]"))[1]) == translations[0]


ASK = """([address, token]) => fetch(address, { headers: { Authorization: `Bearer ${token}` } })
  .then((answer) => answer.status, (error) => error.message)"""


def test_the_page_asks_for_the_token_once_and_an_allowed_site_sends_it(
    open_page: Open, browser: Browser, saved_models: tuple[Path, Path], tmp_path: Path
) -> None:
    """A server that a site at 127.0.0.1 may use and none at localhost, and no translator."""
    (tmp_path / "index.html").touch()
    (tmp_path / "token").write_text("right\n")
    access = ("--no-translator", "--token-file", str(tmp_path / "token"))
    with serving(tmp_path) as port:
        site = ("--allow-origin", f"http://127.0.0.1:{port}/")
        with running(saved_models[0], *access, *site) as server:
            page = open_page()
            page.goto(server.address)
            form = page.locator("#token-dialog")
            form.get_by_role("button", name="Cancel").click()
            expect(page.get_by_role("alert")).to_be_visible()
            page.click("#choose")  # It asks again.
            form.get_by_label("Token").fill("wrong")
            page.keyboard.press("Enter")
            expect(form.get_by_role("alert")).to_have_text("The server refuses this token.")
            form.get_by_label("Token").fill("right ")
            page.keyboard.press("Enter")
            page.wait_for_selector("html[data-ready=yes]", state="attached")
            expect(page.locator("#tabs")).to_be_hidden()
            page.click("#example")
            captioned(page, 1)
            page.reload()
            captioned(page, 1)
            expect(form).to_be_hidden()
            other = browser.new_page()
            address = f"{server.address}api/model"
            for host, token, answered in (
                *(("127.0.0.1", "right", 200), ("127.0.0.1", "wrong", 401)),
                ("localhost", "right", "Failed to fetch"),
            ):
                other.goto(f"http://{host}:{port}/")
                assert other.evaluate(ASK, [address, token]) == answered
            other.close()
        page.set_input_files("#files", [photo_file(1)])
        expect(page.locator("[data-state=failed] .state")).to_contain_text("still running?")


def test_a_click_into_a_sentence_edits_it_and_the_server_keeps_the_edit(
    open_page: Open, saved_models: tuple[Path, Path], tmp_path: Path
) -> None:
    table = tmp_path / "edits.csv"
    with running(saved_models[0], "--edits", str(table), "--title", "My trip") as server:
        page = open_page(server.address)
        expect(page.get_by_role("heading", level=1)).to_have_text("My trip")
        card = add(page, photo_file(1, "1.png"))
        _, *others = words_of(card)
        for key, count in (("Escape", 0), ("Enter", 1)):
            card.locator(".word").first.click()
            page.keyboard.type("another")  # In the place of the word.
            page.keyboard.press(key)
            expect(card.locator(".editor")).to_have_count(0)
            expect(card.locator(".person")).to_have_count(count)
        edited = " ".join(["another", *others])
        expect(card.locator(".person")).to_have_text(edited)
        digest = photo_digest(str(save_photo(tmp_path / "1.png", 1, (240, 180))))
        assert (
            table.read_text()
            == f"image,caption,language,photo_digest\n1.png,{edited},en,{digest}\n"
        )
        page.reload()
        expect(card.locator(".person")).to_have_text(edited)
        page.locator("#show-edits").click()
        commands = [line.split()[1:3] for line in page.locator(".command").all_inner_texts()]
        assert commands == [["write", str(table)], ["train", str(table)]]
        page.keyboard.press("Escape")
        add(page, photo_file(2, "1.png"))  # Another photo of this name.
        expect(page.locator(".person")).to_have_count(1)
        page.locator(".item").nth(1).locator(".edit").click()
        page.locator(".editor").fill("ein Hund")
        page.keyboard.press("Enter")
        expect(page.locator(".person")).to_have_text([edited, "ein Hund"])
        other = photo_digest(str(save_photo(tmp_path / "1.png", 2, (240, 180))))
        assert table.read_text().endswith(f",en,{digest}\n1.png,ein Hund,de,{other}\n")
        server.process.kill()
        card.locator(".person").click()
        page.keyboard.type("lost?")
        page.keyboard.press("Enter")
        expect(card.get_by_role("alert")).to_contain_text("still running?")
        expect(card.locator(".editor")).to_have_value("lost?")


def test_a_german_browser_gets_german_pages(open_page: Open, tmp_path: Path) -> None:
    page = open_page(locale="de-CH")
    expect(page.locator("html")).to_have_attribute("lang", "de")
    add(page, photo_file(1, "Edit.png"), photo_file(2, "Copy.png"))
    expect(page.get_by_text("Auf ein Wort zeigen")).to_be_visible()
    german = json.loads(static_file("texts.json"))["de"]
    shown = {text for text in page.locator("body").inner_text().splitlines() if text in german}
    assert [text for text in shown if german[text] != text] == []
    (tmp_path / "page.html").write_bytes(downloaded(page, page.locator("#all-html"))[1])
    page.goto((tmp_path / "page.html").as_uri())
    expect(page.locator("h1")).to_have_text("Wohin das Modell geschaut hat")
    assert page.locator(".file").all_inner_texts() == ["Edit.png", "Copy.png"]
