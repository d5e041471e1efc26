"""The page in a real browser: screens of all sizes, those who do not see it, and sentences."""

from __future__ import annotations

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
    canvas_of,
    captioned,
    downloaded,
    far,
    needs_chromium,
    photo_file,
    preview_of,
    translate,
    words_of,
)
from PIL import Image
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


@pytest.mark.parametrize("how", [DESK, TELEPHONE], ids=["desk", "telephone"])
def test_controls_are_apart_and_as_large_as_a_fingertip(
    open_page: Open, how: dict[str, Any]
) -> None:
    page = open_page(**how)
    page.evaluate("document.getElementById('translation-language-setting').hidden = false")
    add(page, photo_file(1))
    of_photos = ["#choose", "#photograph", "#language", ".switch span", ".play", ".copy"]
    for tab, names in (
        ("photos", [*of_photos, ".tabs button"]),
        ("sentences", ["#translation-language", "#translate [type=submit]", ".tabs button"]),
    ):
        page.locator(f"#tab-{tab}").click()
        boxes = [each.bounding_box() for name in names for each in page.locator(name).all()]
        shown = [each for each in boxes if each]
        assert len(shown) >= 4
        if how == TELEPHONE:
            assert min(each["height"] for each in shown) >= 44
        for number, one in enumerate(shown):
            for other in shown[:number]:
                assert any(
                    first[start] + first[size] <= second[start]
                    for start, size in (("x", "width"), ("y", "height"))
                    for first, second in ((one, other), (other, one))
                )
    language, button = shown[:2]
    if how == DESK:
        assert language["x"] + language["width"] < button["x"]  # In one row.
    else:
        assert language["width"] == button["width"]


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("how", [DESK, TELEPHONE], ids=["desk", "telephone"])
def test_a_photo_and_the_map_of_a_word_are_on_the_screen(
    open_page: Open, tmp_path: Path, how: dict[str, Any], scheme: str
) -> None:
    page = open_page(**how, color_scheme=scheme)
    card = add(page, photo_file(1))
    card.locator("figure").scroll_into_view_if_needed()

    def screen(name: str) -> Image.Image:
        page.screenshot(path=tmp_path / name)
        with Image.open(tmp_path / name) as picture:
            return picture.convert("RGB")

    def photo_of(picture: Image.Image) -> Image.Image:
        box = card.locator(".stage").bounding_box()
        left, top, width, height = (box[each] for each in ("x", "y", "width", "height"))
        assert left >= 0 <= top
        assert left + width <= picture.width
        assert top + height <= picture.height
        assert width > picture.width / 3
        return picture.crop((round(left), round(top), round(left + width), round(top + height)))

    bare = screen("bare.png")
    assert bare.size == (how["viewport"]["width"], how["viewport"]["height"])
    assert far(photo_of(bare), preview_of(card)) < 8  # The photo as it is, but for its corners.
    assert np.asarray(photo_of(bare)).std() > 20
    paper = sum(bare.getpixel((2, 2))) / 3  # type: ignore[arg-type, misc]
    colour = page.locator("body").evaluate("one => getComputedStyle(one).color")
    ink = sum(map(int, colour[4:-1].split(","))) / 3
    assert paper > 200 > 80 > ink if scheme == "light" else ink > 200 > 80 > paper
    word = card.locator(".word").nth(1)
    word.tap() if how.get("has_touch") else word.hover()
    expect(card.locator("canvas")).to_be_visible()
    pointed = screen("pointed.png")
    assert pointed.size == bare.size
    assert far(photo_of(pointed), photo_of(bare)) > 10
    assert far(photo_of(pointed), canvas_of(card)) < 8
    words = word.bounding_box()
    middle = (round(words["x"] + 3), round(words["y"] + words["height"] / 2))
    assert pointed.getpixel(middle) != bare.getpixel(middle)  # The word itself is marked.


def test_motion_is_there_only_where_it_is_wanted(open_page: Open) -> None:
    for motion, expected in (("no-preference", "come"), ("reduce", "none")):
        page = open_page(reduced_motion=motion)
        card = add(page, photo_file(1))
        name = card.evaluate("card => getComputedStyle(card).animationName")
        assert name == expected


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


def test_a_tapped_word_of_a_translation_keeps_its_alignment(open_page: Open) -> None:
    page = open_page(**TELEPHONE)
    # As in Safari, where a button that is tapped gets no focus.
    page.evaluate("addEventListener('mousedown', (event) => event.preventDefault(), true)")
    page.locator("#tab-sentences").tap()
    page.fill("#text", "The dog sees a man.")
    with page.expect_response("**/api/translate") as answered:
        page.get_by_role("button", name="Translate").tap()
    alignment = answered.value.json()["translations"][0]["translations"][0]["word_alignment"]
    card = page.locator(".translation")
    words, rows = card.locator(".target .token"), card.locator("table tr")
    sources = card.locator(".source .token")
    for number in (1, 0):
        words.nth(number).tap()
        expect(card.locator(".target .shown")).to_have_count(1)
        expect(words.nth(number)).to_have_class("token shown")
        expect(words.nth(number)).to_have_attribute("aria-pressed", "true")
        expect(rows.nth(number + 1)).to_have_class("shown")
        lit = sources.evaluate_all(
            "tokens => tokens.map((token) => parseFloat(token.style.getPropertyValue('--weight')))"
        )
        assert lit == pytest.approx([100 * weight for weight in alignment[number]], abs=0.51)
    rows.nth(2).tap()
    expect(words.nth(1)).to_have_attribute("aria-pressed", "true")
    words.nth(1).tap()  # Once more lets it go.
    expect(card.locator(".shown, .lit, .target [aria-pressed=true]")).to_have_count(0)


def test_a_word_of_a_translation_is_kept_by_a_click_and_let_go_by_escape(open_page: Open) -> None:
    page = open_page()
    translate(page, "The dog sees a man.")
    words = page.locator(".translation .target .token")
    words.nth(0).click()
    words.nth(1).hover()
    expect(words.nth(1)).to_have_class("token shown")
    page.mouse.move(5, 5)
    expect(words.nth(0)).to_have_class("token shown")
    page.keyboard.press("Escape")
    expect(page.locator(".translation .shown, .translation .lit")).to_have_count(0)
    words.nth(1).hover()
    page.mouse.move(5, 5)
    expect(page.locator(".translation .shown")).to_have_count(0)


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
