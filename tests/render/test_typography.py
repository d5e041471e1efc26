import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.render.typography import (
    BACKGROUND,
    DOUBT_INK,
    INK,
    PALE_INK,
    font_for,
    lay_out,
    printable,
    shortened,
)


@pytest.mark.parametrize("ink", [INK, PALE_INK, DOUBT_INK])
def test_inks_have_the_contrast_of_wcag_aa(ink: tuple[int, int, int]) -> None:
    """Its relative luminance and its bound for text, 4.5 to 1."""

    def luminance(colour: tuple[int, int, int]) -> float:
        linear = [((part / 255 + 0.055) / 1.055) ** 2.4 for part in colour]  # None is near black.
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert (luminance(BACKGROUND) + 0.05) / (luminance(ink) + 0.05) >= 4.5


@given(st.text(alphabet=st.characters(), max_size=20))
def test_printable_gives_text_on_one_line_that_can_be_encoded(text: str) -> None:
    result = printable(text)
    result.encode("utf-8")
    assert all(letter.isprintable() for letter in result)
    assert printable(result) == result
    assert printable(" a naïve\ndog,\x00 犬 & <unk>\udc80 ") == "a naïve dog, 犬 & <unk>?"


def test_letters_the_first_font_lacks_come_from_another() -> None:
    latin, cyrillic = font_for("dog", 20), font_for("собака", 20)
    box = bytes(latin.getmask("\U0010fffe"))
    assert bytes(latin.getmask("с")) == box
    assert bytes(cyrillic.getmask("с")) != bytes(cyrillic.getmask("\U0010fffe"))


def test_shortened_is_the_longest_beginning_that_fits() -> None:
    font = font_for("abc", 20)
    word = "incomprehensibilities"
    for width in (40, 80, 120):
        result = shortened(word, font, width)
        kept = len(result) - 1
        assert result == word[:kept] + "…"
        assert font.getlength(result) <= width
        assert font.getlength(word[: kept + 1] + "…") > width
    assert shortened(word, font, 1000) == word


@given(
    words=st.lists(st.text(alphabet=st.characters(), min_size=1, max_size=30), min_size=1),
    width=st.integers(60, 400),
)
def test_layout_keeps_order_and_width(words: list[str], width: int) -> None:
    paragraph = lay_out(words, 18, width)
    centred = lay_out(["dog"], 18, width, centred=True).words[0]
    assert centred.left + centred.width / 2 == pytest.approx(width / 2)
    assert len(paragraph.words) == len(words)
    for word in paragraph.words:
        assert word.left >= 0
        assert word.left + word.width <= width + 1e-6
        assert word.top + paragraph.line_height <= paragraph.height
    for before, after in itertools.pairwise(paragraph.words):
        same_line = after.top == before.top
        assert (same_line and after.left > before.left + before.width) or after.top > before.top
