from __future__ import annotations

import base64
import io
import re

import pytest
from parsed_page import ParsedPage
from PIL import Image

from captioner.render.score_page import ScoredCaption, score_page, small_jpeg

NASTY = "</style><script>alert(1)</script>\"'><img src=x onerror=alert(1)> &amp; \ud800 犬"


def item(name: str = "a.jpg", score: float = 1.5, **named: object) -> ScoredCaption:
    values: dict[str, object] = {
        "name": name,
        "caption": f"a dog of {name}",
        "references": ["the dog", "a wolf"],
        "scores": {"BLEU-1": 0.25, "CIDEr-D": score},
        **named,
    }
    return ScoredCaption(**values)  # type: ignore[arg-type]


def test_both_ends_are_shown_in_order() -> None:
    best, worst = [item("a.jpg"), item("b.jpg", 1)], [item("z.jpg", 0)]
    page = ParsedPage(score_page(best, worst, "CIDEr-D", 9))
    assert page.of("h2") == ["The best", "The worst"]
    assert page.of("figcaption") == ["a.jpg", "b.jpg", "z.jpg"]
    assert "Of 9 captions, the 2 best and the 1 worst, by CIDEr-D" in page.of("p")[0]
    assert page.of("p")[1:] == ["a dog of a.jpg", "a dog of b.jpg", "a dog of z.jpg"]
    assert page.of("li") == ["the dog", "a wolf"] * 3
    assert page.of("span")[:2] == ["CIDEr-D 1.500", "BLEU-1 0.250"]
    assert [each["href"] for each in page.all("a")] == ["#best", "#worst"]
    assert page.all("img") == []


def test_nothing_from_outside_becomes_part_of_the_page() -> None:
    nasty = item(NASTY, caption=NASTY, references=[NASTY], without_photo=NASTY)
    text = score_page([nasty], [], "CIDEr-D", 1)
    page = ParsedPage(text)
    text.encode("utf-8")
    assert not {tag for tag, _ in page.tags} & {"script", "img", "link", "iframe"}
    assert page.of("figcaption")[0].startswith("</style><script>alert(1)</script>")
    assert not re.search(r"https?://|url\(|@import", text)
    policies = [each["content"] for each in page.all("meta") if "http-equiv" in each]
    assert policies == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


@pytest.mark.parametrize(("size", "shown"), [((1200, 600), (480, 240)), ((30, 20), (30, 20))])
def test_a_photo_is_in_the_page(size: tuple[int, int], shown: tuple[int, int]) -> None:
    jpeg = small_jpeg(Image.new("L", size))
    page = ParsedPage(score_page([item(jpeg=jpeg)], [], "CIDEr-D", 1))
    (source,) = [each["src"] for each in page.all("img")]
    head, data = source.split(",")
    assert head == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as photo:
        assert photo.size == shown
    assert "The worst" not in page.of("h2")


def test_a_missing_photo_and_an_empty_caption_are_told() -> None:
    page = ParsedPage(score_page([], [item(caption="", without_photo="not there")], "CIDEr-D", 1))
    assert page.of("em") == ["an empty caption"]
    assert "not there" in page.of("div")
