"""A page of `captioner caption` in a browser: edited captions become a table to train on."""

from pathlib import Path

from chromium_samples import downloaded, needs_chromium
from playwright.sync_api import Browser, expect
from samples import save_photo

from captioner.cli.main import main
from captioner.data.readers import read_examples

pytestmark = needs_chromium


def test_edits_are_a_table_that_training_reads(
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
        expect(field).to_be_focused()
        if text is not None:
            field.fill(text)
    items.nth(1).locator(".edit").click()
    expect(items.nth(1).locator(".edited")).to_be_hidden()
    expect(save).to_have_text("Save edits (2)")
    is_kept = "!dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    assert page.evaluate(is_kept)
    name, content = downloaded(page, save)
    assert name == "edits.csv"
    table = tmp_path / "elsewhere" / name
    table.parent.mkdir()
    table.write_bytes(content)
    edited = {each.path: each.captions for each in read_examples(None, table)}
    assert edited == {photos[0]: ('My "red", big dog',), photos[2]: (captions[2],)}
    page.fill("#search", "4.png")
    expect(items.first).to_be_hidden()
    expect(items.last).to_be_visible()
    expect(page.locator("h2")).to_be_hidden()
    assert not page.evaluate(is_kept)
    page.close()
