"""The page in a real browser: screens of all sizes, sentences, the token, and its other pages."""

import json
from pathlib import Path
from typing import Any

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
    serving,
    words_of,
)
from playwright.sync_api import Browser, Dialog, expect
from samples import save_photo
from serve_samples import Running, running

from captioner.cli.main import main
from captioner.data.readers import read_examples

pytestmark = needs_chromium


@pytest.mark.parametrize("how", [DESK, TELEPHONE, {"viewport": {"width": 320, "height": 640}}])
def test_it_fits_every_screen_shows_names_as_text_and_tells_screen_readers(
    open_page: Open, how: dict[str, Any]
) -> None:
    page = open_page(**how)
    too_wide = "document.documentElement.scrollWidth > innerWidth"
    assert not page.evaluate(too_wide)
    name = "<img src=x onerror=window.bad=1>" + "a-name-without-a-space-" * 8 + ".png"
    card = add(page, photo_file(1, name), photo_file(2))
    text = " ".join(words_of(card))
    expect(page.locator("#announcements")).to_contain_text(".png: ")
    assert page.locator("#announcements").get_attribute("aria-live") == "polite"
    assert card.locator("img").get_attribute("alt") == text
    expect(card.locator(".file")).to_have_text(name)
    card.locator(".word").first.click()
    expect(card.locator(".word").first).to_have_attribute("aria-pressed", "true")
    expect(card.locator("canvas")).to_be_visible()
    page.locator("#captions").fill("3")
    page.locator("#captions").dispatch_event("change")
    expect(card.locator(".caption")).to_have_count(3)
    captioned(page, 2)
    lowest = card.locator(".caption").nth(2).locator(".word").first
    lowest.click()
    photo, word = card.locator(".stage").bounding_box(), lowest.bounding_box()
    if how is TELEPHONE:
        assert photo["y"] >= 0  # It stays in sight,
        assert word["y"] > photo["y"] + photo["height"]  # and above the word.
    assert not page.evaluate(too_wide)
    page.locator("#tab-sentences").click()
    page.fill("#text", "<img src=x onerror=window.bad=1> The dog sees a man, and runs. " * 3)
    page.keyboard.press("Enter")
    expect(page.locator(".translation")).to_have_count(1)
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
    expect(page.locator("#tab-sentences")).to_be_focused()
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


ASK = """async ([address, token]) => {
  const body = new FormData();
  body.append("photo", new Blob(["no photo"]), "a.txt");
  const headers = { Authorization: `Bearer ${token}` };
  try {
    const answer = await fetch(address, { method: "POST", body, headers });
    return [answer.status, (await answer.json()).error];
  } catch (error) {
    return [0, error.message];
  }
}"""


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
            answers, asked = iter(["wrong", "right "]), []

            def answer(dialog: Dialog) -> None:
                asked.append(dialog.message)
                dialog.accept(next(answers))

            page.on("dialog", answer)
            page.goto(server.address)
            page.wait_for_selector("html[data-ready=yes]", state="attached")
            expect(page.locator("#tabs")).to_be_hidden()
            page.click("#example")
            captioned(page, 1)
            page.reload()
            captioned(page, 1)
            assert asked == ["The token of this server"] * 2
            other = browser.new_page()
            address = f"{server.address}api/caption"
            other.goto(f"http://127.0.0.1:{port}/")
            status, sentence = other.evaluate(ASK, [address, "right"])
            assert (status, "a.txt is not an image" in sentence) == (422, True)
            assert other.evaluate(ASK, [address, "wrong"])[0] == 401
            other.goto(f"http://localhost:{port}/")
            assert other.evaluate(ASK, [address, "right"]) == [0, "Failed to fetch"]
            other.close()
        page.set_input_files("#files", [photo_file(1)])
        expect(page.locator("[data-state=failed] .state")).to_contain_text("still running?")


def test_the_description_is_shown(open_page: Open, server: Running) -> None:
    page = open_page()
    page.goto(f"{server.address}docs")
    expect(page.locator(".opblock-summary-path")).to_have_count(5)
    page.get_by_text("/api/caption").first.click()
    expect(page.get_by_text("image files", exact=True)).to_be_visible()


def test_edits_of_a_written_page_are_a_table_that_training_reads(
    browser: Browser, saved_models: tuple[Path, Path], tmp_path: Path
) -> None:
    names = ["1.png", "2.png", "a trip/3 #é%20.png", "a trip/4.png"]
    photos = [save_photo(tmp_path / "photos" / name, number) for number, name in enumerate(names)]
    page_file = tmp_path / "the page" / "page.html"
    command = ["caption", str(tmp_path / "photos"), "--model", str(saved_models[0]), "--quiet"]
    assert main([*command, "--html", str(page_file)]) == 0
    page = browser.new_page()
    page.goto(page_file.as_uri())
    assert page.locator("h2").all_inner_texts() == ["a trip"]
    items, save = page.locator(".item"), page.locator("#save")
    expect(save).to_be_hidden()
    captions = [items.nth(number).locator(".words").inner_text() for number in range(4)]
    for number, text in ((0, ' My "red", big\n dog '), (1, "A mistake"), (2, None), (3, " ")):
        items.nth(number).locator(".edit").click()
        field = items.nth(number).locator(".edited")
        expect(field).to_have_value(captions[number])
        if text is not None:
            field.fill(text)
    items.nth(1).locator(".edit").click()
    expect(save).to_have_text("Save edits (2)")
    is_kept = "!dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    assert page.evaluate(is_kept)
    name, content = downloaded(page, save)
    (tmp_path / name).write_bytes(content)
    edited = {each.path: each.captions for each in read_examples(None, tmp_path / "edits.csv")}
    assert edited == {photos[0]: ('My "red", big dog',), photos[2]: (captions[2],)}
    page.fill("#search", "4.png")
    expect(items.first).to_be_hidden()
    expect(items.last).to_be_visible()
    assert not page.evaluate(is_kept)
    page.close()
