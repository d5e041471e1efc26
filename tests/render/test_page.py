import base64
import hashlib
import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lxml import html
from PIL import Image
from render_samples import PHOTO, REGION, attention

from captioner import serve
from captioner.render.overlay import MappedCaption
from captioner.render.page import PageItem, PageWriter, html_page, phrases, save_html, static_file


def texts(page: Any, name: str) -> list[str]:
    """The texts directly in tags or classes of a name."""
    return [each.text.strip() for each in page.xpath(f"//{name} | //*[@class='{name}']")]


NASTY = ["</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'", "&amp;", "犬"]


def _data(page: Any) -> list[Any]:
    """What the viewer gets for each photo."""
    return [json.loads(data) for data in page.xpath("//@data-maps")]


def _item(words: list[str], name: str = "", **others: Any) -> PageItem:
    caption = MappedCaption(words, attention(len(words)), **others)
    return PageItem.of(PHOTO, REGION, [caption], name)


def test_holds_photo_words_maps_and_region() -> None:
    words, maps = ["a", "dog", "runs"], attention(3)
    page = html.fromstring(html_page([_item(words, "dog.jpg")]))
    assert texts(page, "word") == words
    assert texts(page, "file") == ["dog.jpg"]
    (shown,), (unit,) = _data(page), map(float, page.xpath("//@data-unit"))
    assert (shown["rows"], shown["columns"]) == (14, 14)
    assert shown["region"] == pytest.approx([15 / 90, 0, 75 / 90, 1])
    found = np.array(shown["captions"][0]) * unit
    np.testing.assert_allclose(found.reshape(3, 14, 14), maps, atol=unit)
    head, _, encoded = next(page.iter("img")).attrib["src"].partition(",")
    assert head == "data:image/jpeg;base64"
    stored = np.asarray(Image.open(io.BytesIO(base64.b64decode(encoded)))).astype(int)
    assert np.abs(stored - np.asarray(PHOTO)).mean() < 12


def test_folders_are_headings_above_their_photos(tmp_path: Path) -> None:
    def item(path: str, folder: str) -> PageItem:
        name = path.rpartition("/")[2]
        return replace(_item(["dog"] * int(name), name), path=path, folder=folder)

    items = [item("a/b/1", "<b>"), item("a/2", ""), item("a/b/3", "<b>"), item("a/4", "")]
    file = tmp_path / "new" / "page.html"
    writer = PageWriter(file, title="<Summer>")
    for each in items:
        writer.add(each)
        assert os.listdir(file.parent) == []  # An interrupted run leaves nothing.
    writer.close()
    text = file.read_text(encoding="utf-8")
    page = html.fromstring(text)
    assert [each.text for each in page.xpath("//h1 | //title")] == ["<Summer>"] * 2
    shown = [each.text for each in page.xpath("//h2 | //*[@class='file']")]
    assert shown == ["2", "4", "<b>", "1", "3"]
    files = [each.get("data-image") for each in page.iter("figcaption")]
    assert files == ["a/2", "a/4", "a/b/1", "a/b/3"]
    assert [len(each["captions"][0]) for each in _data(page)] == [2, 4, 1, 3]
    PageWriter(file).close()  # No photos: the page stays.
    assert file.read_text(encoding="utf-8") == text


def test_alternatives_with_doubt_and_confidence_of_a_large_photo() -> None:
    sure = MappedCaption(["a", "dog"], attention(2), "not sure", confidence=0.46)
    captions, photo = [sure, MappedCaption(["cat"], attention(1))], Image.new("RGB", (3000, 1500))
    items = [PageItem.of(photo, (750, 0, 2250, 1500), captions), _item(["sea"])]
    page = html.fromstring(html_page(items))
    assert texts(page, "word") == ["a", "dog", "cat", "sea"]
    first, second = _data(page)
    assert [len(maps) for maps in (*first["captions"], *second["captions"])] == [2, 1, 1]
    assert first["region"] == pytest.approx([0.25, 0, 0.75, 1])
    assert (texts(page, "doubt"), texts(page, "confidence")) == (["not sure"], ["46 %"])
    image = next(page.iter("img")).attrib
    assert (image["width"], image["height"]) == ("1000", "500")


def test_a_page_is_in_the_language_of_its_first_caption() -> None:
    def page(language: str) -> str:
        return html_page([_item(["chat"], language=language, confidence=0.5)])

    assert vars(phrases("en")).keys() == vars(phrases("fr")).keys() == vars(phrases("de")).keys()
    assert '<html lang="fr">' in page("fr-CA")
    assert '<html lang="en">' in page("it")


def test_every_text_of_the_pages_is_in_german_and_french() -> None:
    german, french = json.loads(static_file("texts.json")).values()
    assert german.keys() == french.keys()
    package = Path(serve.__file__).parents[1]
    files = [*package.glob("*/*/*.html"), *package.glob("*/*/*.js"), package / "render/page.py"]
    sources = " ".join(" ".join(file.read_text(encoding="utf-8") for file in files).split())
    assert [text for text in german if text not in sources] == []
    assert set(re.findall(r'say\(\s?"([^"]+)"', sources)) <= german.keys()


def test_a_plain_page_has_no_doubt_percentages_or_buttons(tmp_path: Path) -> None:
    item = _item(
        ["a", "dog"], "1.jpg", doubt="not sure", confidence=0.4, word_confidence=(None, 0.3)
    )
    bodies = []
    for is_plain in (False, True):
        writer = PageWriter(tmp_path / "page.html", is_plain=is_plain)
        writer.add(item)
        writer.close()
        page = html.parse(tmp_path / "page.html").getroot()
        assert [word.text for word in page.xpath("//li/p/span")] == ["a", "dog"]
        for script in page.xpath("//script | //style"):
            script.drop_tree()
        bodies.append(html.tostring(page, encoding="unicode").replace('data-strength="80"', ""))
    for sign in ("not sure", " %", "<button"):
        assert sign in bodies[0]
        assert sign not in bodies[1]


def test_the_alternative_is_the_sentence_and_the_digest_is_for_the_table() -> None:
    item = replace(_item(["a", "dog"], "1.jpg"), text='A "Dog".', photo_digest="0f")
    page = html.fromstring(html_page([item]))
    assert page.xpath("//@alt | //@data-text") == ['A "Dog".'] * 2
    assert page.xpath("//@data-digest") == ["0f"]


def test_everything_is_escaped(tmp_path: Path) -> None:
    name = "</script><b>\"'&\udc80\u2028.jpg"
    text = html_page([_item(NASTY, name)])
    page = html.fromstring(text)
    assert texts(page, "word") == NASTY
    assert len(texts(page, "script")) == 1
    assert len(list(page.iter("img"))) == 1
    assert not page.xpath("//@*[starts-with(name(), 'on')]")
    assert texts(page, "file")[0].startswith("</script><b>\"'&")
    save_html(tmp_path / "page.html", [_item(NASTY, name)], 0.8)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == text


def test_loads_nothing_and_forbids_itself_to() -> None:
    text = html_page([_item(["dog"])])
    page = html.fromstring(text)
    assert [each for each in page.xpath("//@src | //@href") if each[:5] != "data:"] == []
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttpRequest", text)
    (policy,) = page.xpath("//meta[@http-equiv]/@content")
    assert "default-src 'none'" in policy
    script = text.partition('<script type="module">')[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_doubtful_words_are_paler_and_all_show_their_confidence() -> None:
    page = html_page([_item(["a", "dog", "runs"], word_confidence=(None, 0.5, 0.494))])
    assert '<span class="word">a</span>' in page
    assert '<span class="word" title="50 %">dog</span>' in page
    assert '<span class="word doubtful" title="49 %">runs</span>' in page


@pytest.mark.parametrize("scheme", [0, 1])
def test_pale_words_can_be_read(scheme: int) -> None:
    """Of doubtful words on a card, light and dark: 4.5:1 and more (WCAG 2, 1.4.3)."""
    sheet = static_file("pages.css")
    opacity = float(re.findall(r"doubtful[^{]*{ opacity: ([\d.]+)", sheet)[0])
    assert "\n::placeholder { color: var(--pale); opacity: 1; }\n" in sheet  # Of the search.
    colours = {}
    for name in ("ink", "card", "paper", "doubt", "pale"):
        code = re.findall(rf"--{name}: #(\w+);", sheet)[scheme]
        colours[name] = np.array([*bytes.fromhex(code)]) / 255
    shown = opacity * colours["ink"] + (1 - opacity) * colours["card"]
    for colour in (shown, colours["doubt"], colours["pale"]):
        for ground in (colours["card"], colours["paper"]):
            pair = np.stack([colour, ground])
            linear = np.where(pair <= 0.04045, pair / 12.92, ((pair + 0.055) / 1.055) ** 2.4)
            dark, light = sorted(linear @ (0.2126, 0.7152, 0.0722))
            assert (light + 0.05) / (dark + 0.05) >= 4.5
