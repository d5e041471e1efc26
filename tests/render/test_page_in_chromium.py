"""The page of `--html` in a real browser: search, albums, edits, many photos, phones, print."""

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from chromium_samples import DESK, TELEPHONE, Open, browser, downloaded, needs_chromium, opening
from playwright.sync_api import Browser, Page, expect
from render_samples import PHOTO, REGION, attention
from samples import save_photo

from captioner.data.readers import read_splits
from captioner.render.overlay import ErasedWord, MappedCaption
from captioner.render.page import PageItem, PageWriter

pytestmark = needs_chromium
__all__ = ["browser"]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    with opening(browser) as opened:
        yield opened


def item(number: int, words: str, folder: str = "", doubt: str = "", text: str = "") -> PageItem:
    tokens = words.split()
    caption = MappedCaption(tokens, attention(len(tokens)), doubt, confidence=0.5)
    made = PageItem.of(PHOTO, REGION, [caption], f"{number}.jpg")
    path = f"{folder}/{number}.jpg".lstrip("/")
    return replace(made, path=path, folder=folder, text=text, photo_digest=f"{number:064x}")


def written(path: Path, items: list[PageItem], is_plain: bool = False) -> str:
    writer = PageWriter(path, is_plain=is_plain)
    for each in items:
        writer.add(each)
    writer.close()
    return path.as_uri()


def test_photos_are_found_by_words_album_and_doubt(open_page: Open, tmp_path: Path) -> None:
    items = [item(1, "a dog"), item(2, "a cat", "Rome", "not sure"), item(3, "a dog", "Rome")]
    items += [item(4, "a red dog", "Paris", "not sure"), item(5, "a bird", "Paris")]
    page = open_page(written(tmp_path / "page.html", items))
    shown = page.locator("h2:visible, .item:visible .file")
    for search, album, is_unsure, expected in (
        ("", "", False, ["1.jpg", "Paris", "4.jpg", "5.jpg", "Rome", "2.jpg", "3.jpg"]),
        ("DOG ", "", False, ["1.jpg", "Paris", "4.jpg", "Rome", "3.jpg"]),
        ("dog red", "", False, ["Paris", "4.jpg"]),
        ("dog", "Rome", False, ["Rome", "3.jpg"]),
        ("", "", True, ["Paris", "4.jpg", "Rome", "2.jpg"]),
        ("unicorn", "", False, []),
    ):
        page.fill("#search", search)
        page.locator("#albums").select_option(album)
        page.locator("#unsure").set_checked(is_unsure)
        assert shown.all_inner_texts() == expected
        expect(page.locator("#nothing")).to_have_text("" if expected else "Nothing found.")
    assert page.locator("#albums option").all_inner_texts() == ["All albums", "Paris", "Rome"]
    page.fill("#search", "")
    page.locator(".edit").nth(1).click()
    page.keyboard.press("Enter")  # Who confirms a caption is sure.
    page.locator("#unsure").check()
    assert shown.all_inner_texts() == ["Rome", "2.jpg"]


def test_a_press_on_a_tested_word_erases_what_its_map_shows(
    open_page: Open, tmp_path: Path
) -> None:
    maps = attention(3)
    places = np.zeros(np.shape(maps)[1:], bool)
    places[0, 0] = True
    tested = ErasedWord(2, places, math.log(0.69), math.log(0.12), math.log(0.66), "a cat")
    caption = MappedCaption(["a", "red", "dog"], maps, erased=[tested])
    page = open_page(written(tmp_path / "page.html", [PageItem.of(PHOTO, REGION, [caption])]))
    words, note = page.locator(".word"), page.locator(".erased")
    words.nth(1).hover()
    expect(note).to_have_text("")
    words.nth(2).hover()
    told = "dog: 69 %; 12 % without what its map shows, 66 % without as much elsewhere."
    expect(note).to_have_text(f"{told} Then: “a cat”. Press the word to see it.")
    shown = canvas_pixels(page)
    page.mouse.down()
    erased = canvas_pixels(page)
    assert erased != shown
    page.wait_for_timeout(400)
    page.mouse.up()
    assert canvas_pixels(page) == shown
    expect(page.locator("textarea, .editor")).to_have_count(0)  # A long press is no click.
    page.keyboard.down("e")
    assert canvas_pixels(page) == erased


def canvas_pixels(page: Page) -> str:
    return str(page.evaluate("document.querySelector('canvas').toDataURL()"))


def test_edits_are_a_table_that_training_reads_in_the_language_of_their_words(
    open_page: Open, tmp_path: Path
) -> None:
    typed = "Anna's dog (left) runs!"
    items = [item(1, "anna 's dog -lrb- left -rrb- runs", text=typed)]
    items += [item(n, "a dog", "" if n == 4 else "a trip") for n in (2, 3, 4, 5)]
    page = open_page(written(tmp_path / "page.html", items))
    texts = {1: f" {typed}", 2: '+1 "rouge", un\nchien', 3: "ein Hund", 4: "la", 5: "A mistake"}
    for number, text in texts.items():
        card = page.locator(".item", has_text=f"{number}.jpg")
        card.locator(".edit").click()
        editor = card.locator(".editor")
        expect(editor).to_have_value(typed if number == 1 else "a dog")
        editor.fill(text)
        if number == 4:
            card.get_by_label("Language").select_option("en")
            editor.fill("le chien")  # It stays as it was chosen.
            card.get_by_label("Language").focus()
            expect(editor).to_be_visible()
        page.keyboard.press("Enter")
        expect(editor).to_have_count(0)
    page.click("#show-edits")
    page.get_by_role("button", name="Remove a trip/5.jpg").click()
    expect(page.locator("#show-edits")).to_have_text("Edits (4)")
    name, content = downloaded(page, page.get_by_role("button", name="Download edits.csv"))
    rows = [*csv.DictReader(io.StringIO(content.decode()))]
    assert [row["language"] for row in rows] == ["en", "fr", "de", "en"]
    assert [row["photo_digest"] for row in rows] == [f"{number:064x}" for number in (1, 2, 3, 4)]
    photos = {
        n: save_photo(tmp_path / ("a trip" if n in (2, 3) else "") / f"{n}.jpg") for n in texts
    }
    (tmp_path / name).write_bytes(content)
    edited = {each.source: each.captions for each in read_splits(None, tmp_path / name)[0]}
    words = {1: typed, 2: '+1 "rouge", un chien', 3: "ein Hund", 4: "le chien"}
    assert edited == {photos[number]: (text,) for number, text in words.items()}


def test_photos_load_when_they_are_near_the_window_or_used(open_page: Open, tmp_path: Path) -> None:
    items = [item(number, "a dog runs") for number in range(60)]
    page = open_page(written(tmp_path / "page.html", items), **DESK)
    loaded = page.locator(".item img")
    expect(loaded.first).to_be_visible()
    assert loaded.count() < 40
    words = page.locator(".item").first.locator(".word")
    words.first.focus()
    for _ in range(59):
        page.keyboard.press("ArrowDown")
    last = page.locator(".item").last
    expect(last.locator(".word").first).to_be_focused()
    expect(last.locator("canvas")).to_be_visible()
    page.keyboard.press("Escape")
    expect(last.locator("canvas")).to_be_hidden()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(loaded).to_have_count(60)


def test_many_photos_on_a_telephone_are_two_columns(open_page: Open, tmp_path: Path) -> None:
    items = [item(number, "a dog runs over a green field") for number in range(40)]
    page = open_page(written(tmp_path / "page.html", items), **TELEPHONE)
    card = page.locator(".item").first
    assert card.bounding_box()["width"] < 390 / 2
    assert page.evaluate("document.documentElement.scrollHeight") < 40 * 200
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    expect(card.locator(".edit")).to_be_hidden()
    card.locator(".stage").tap()
    card.locator(".edit").tap()
    card.locator(".editor").fill("a cat")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(card).not_to_have_attribute("popover", "auto")
    expect(card.locator(".person")).to_have_text("a cat")
    card.locator(".word").first.tap()
    expect(card.locator("canvas")).to_be_visible()


@pytest.mark.parametrize("screen", [DESK, TELEPHONE])
def test_a_plain_page_shows_maps_and_no_buttons(
    open_page: Open, tmp_path: Path, screen: dict[str, object]
) -> None:
    items = [item(number, "a dog") for number in range(8)]
    page = open_page(written(tmp_path / "page.html", items, is_plain=True), **screen)
    card = page.locator(".item").first
    word = card.locator(".word").first
    (word.tap if screen is TELEPHONE else word.hover)()
    expect(card.locator("canvas")).to_be_visible()
    expect(card.locator(".editor")).to_have_count(0)
    before = card.locator(".stage").bounding_box()
    card.locator(".stage").click()
    expect(card).to_have_attribute("popover", "auto")
    assert card.locator(".stage").bounding_box()["width"] > before["width"]
    page.keyboard.press("Escape")
    expect(card).not_to_have_attribute("popover", "auto")
    assert card.locator(".stage").bounding_box() == before
