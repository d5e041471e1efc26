"""Text on pictures, and pictures in files."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from render_samples import PHOTO, REGION, attention

from captioner.render.overlay import (
    MappedCaption,
    overlay,
    safe_name,
    save_picture,
    save_word_images,
)
from captioner.render.typography import font_for, lay_out, printable, shortened


@given(st.text(alphabet=st.characters(), max_size=20))
def test_printable_gives_text_on_one_line_that_can_be_encoded(text: str) -> None:
    result = printable(text)
    result.encode("utf-8")
    assert [letter for letter in result if not letter.isprintable()] == []
    assert printable(result) == result
    assert printable(" a naïve\ndog,\x00 犬 & <unk>\udc80 ") == "a naïve dog, 犬 & <unk>?"


@given(
    words=st.lists(st.text(alphabet=st.characters(), min_size=1, max_size=30), min_size=1),
    width=st.integers(60, 400),
)
def test_layout_keeps_order_and_width(words: list[str], width: int) -> None:
    paragraph = lay_out(words, 18, width)
    centred = lay_out(["dog"], 18, width, centred=True).words[0]
    assert centred.left + centred.width / 2 == pytest.approx(width / 2)
    assert len(paragraph.words) == len(words)
    font = font_for("a", 18)
    cut = [shortened("a" * 9, font, font.getlength("aaa…") + n) for n in (-1, 0)]
    assert cut == ["aa…", "aaa…"]
    for word in paragraph.words:
        assert word.left >= 0
        assert word.left + word.width <= width + 1e-6
        assert word.top + paragraph.line_height <= paragraph.height
    for before, after in itertools.pairwise(paragraph.words):
        assert (before.top, before.left + before.width) < (after.top, after.left)


# Files


def test_one_picture_a_word_in_order(tmp_path: Path) -> None:
    maps = attention(3)
    folder = tmp_path / "new" / "folder"
    paths = save_word_images(folder, PHOTO, REGION, MappedCaption(["a", "Dog/..", "a"], maps))
    assert [path.name for path in paths] == ["01_a.jpg", "02_dog.jpg", "03_a.jpg"]
    assert sorted(folder.iterdir()) == paths  # nothing else, no temporary file
    for path, weights in zip(paths, maps, strict=True):
        with Image.open(path) as written:
            expected = np.asarray(overlay(PHOTO, weights, REGION), float)
            assert np.abs(np.asarray(written) - expected).mean() < 5
    large = Image.new("RGB", (2000, 1000))
    (path,) = save_word_images(folder, large, REGION, MappedCaption(["a"], maps[:1]))
    assert Image.open(path).size == (1024, 512)
    for name, kind in (("a.png", "PNG"), ("a.JPG", "JPEG"), ("a.webp", "WEBP")):
        save_picture(tmp_path / name, Image.new("RGB", (5, 4), "red"))
        assert Image.open(tmp_path / name).format == kind


@given(st.text(alphabet=st.characters()))
def test_every_name_is_safe(word: str) -> None:
    assert re.fullmatch("[a-z0-9-]{1,40}", safe_name(word))
    names = {"T-shirt": "t-shirt", "Überraschung": "uberraschung", "../etc": "etc", "犬": "word"}
    assert list(map(safe_name, names)) == list(names.values())
