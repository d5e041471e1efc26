"""The page in a real browser: screens of all sizes, those who do not see it, and sentences."""

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
    translate,
    words_of,
)
from playwright.sync_api import expect
from serve_samples import running

pytestmark = needs_chromium


def test_file_names_and_sentences_are_shown_as_text(open_page: Open) -> None:
    page = open_page()
    name = "<img src=x onerror=window.bad=1>.png"
    add(page, photo_file(1, name))
    expect(page.locator(".file")).to_have_text(name)
    assert page.evaluate("window.bad") is None
    translate(page, "<img src=x onerror=window.bad=1>")
    assert page.locator(".translation img").count() == 0
    assert page.evaluate("window.bad") is None


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
    translate(page, "The dog sees a man, and runs. " * 3)
    assert widest() <= width


def test_screen_readers_are_told_of_results(open_page: Open) -> None:
    page = open_page()
    card = add(page, photo_file(1))
    text = " ".join(words_of(card))
    expect(page.locator("#announcements")).to_contain_text(f"photo.png: {text}.")
    assert page.locator("#announcements").get_attribute("aria-live") == "polite"
    assert card.locator("img").get_attribute("alt") == text
    page.locator("#tab-sentences").click()
    for one in page.locator("button, input, textarea, [role=tab], [role=group], section").all():
        named = one.evaluate(
            "one => Boolean(one.ariaLabel || one.textContent.trim() || one.labels?.length"
            " || document.getElementById(one.getAttribute('aria-labelledby')))"
        )
        assert named, one.evaluate("one => one.outerHTML")


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
            card.locator(".alternative").nth(place).click()
            expect(card.locator(".best")).to_have_text(version["translation"])
            assert card.locator(".target .token").all_inner_texts() == version["words"]
            cells = card.locator(".cell").all_inner_texts()
            weights = [f"{weight:.2f}" for row in version["word_alignment"] for weight in row]
            differences = [abs(float(a) - float(b)) for a, b in zip(cells, weights, strict=True)]
            assert max(differences) <= 0.0101
    card, version = cards.first, translations[0]["translations"][1]
    card.locator(".target .token").nth(1).focus()
    row = version["word_alignment"][1]
    lit = card.locator(".source .token").evaluate_all(
        "tokens => tokens.map((token) => parseFloat(token.style.getPropertyValue('--weight')))"
    )
    assert lit == pytest.approx([100 * weight for weight in row], abs=0.51)
    assert json.loads(downloaded(page, card.locator("[data-format=json]"))[1]) == translations[0]


def test_without_a_translator_there_is_no_second_tab(
    open_page: Open, saved_models: tuple[Path, Path]
) -> None:
    with running("--model", str(saved_models[0]), "--no-translator") as server:
        page = open_page(server.address)
        expect(page.locator("#tabs")).to_be_hidden()
        server.process.terminate()
        server.process.wait()
        page.set_input_files("#files", [photo_file(1)])
        expect(page.locator("[data-state=failed] .state")).to_contain_text("still running?")
