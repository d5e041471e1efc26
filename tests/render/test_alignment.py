from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner.errors import UserError
from captioner.render.alignment import AlignmentItem, alignment_page, save_heat_map

ITEM = AlignmentItem(
    ["a", "man", "<end>"], ["ein", "$\\frac$"], [[1.0, 0.0, 0.0], [0.0, 0.75, 0.25]], "ein <b>"
)


def test_a_heat_map_is_dark_where_was_looked(tmp_path: Path) -> None:
    save_heat_map(tmp_path / "map.png", ITEM)
    pixels = np.asarray(Image.open(tmp_path / "map.png").convert("RGB")).astype(int)
    full = (np.abs(pixels - np.array([0x1F, 0x5F, 0xD0])).sum(axis=-1) < 12).mean()
    whole = (pixels.sum(axis=-1) < 765).mean()
    assert 0.01 < full < whole < 1


@pytest.mark.parametrize("suffix", [".pdf", ".svg"])
def test_other_formats(tmp_path: Path, suffix: str) -> None:
    save_heat_map(tmp_path / f"map{suffix}", ITEM)
    assert (tmp_path / f"map{suffix}").stat().st_size > 1000


def test_letters_that_matplotlibs_own_font_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arc is in another of the fonts that come with it, the Chinese dog in none of them."""
    monkeypatch.setattr("captioner.render.alignment._FONTS", ("DejaVu Sans", "STIXGeneral"))
    item = AlignmentItem(["\u2312", "ä\u72ac"], ["a"], [[1.0, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert save_heat_map(tmp_path / "map.png", item) == "\u72ac"


def test_what_cannot_be_drawn(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must end in \.png or \.pdf or \.svg"):
        save_heat_map(tmp_path / "map.txt", ITEM)
    with pytest.raises(UserError, match="the translation is empty"):
        save_heat_map(tmp_path / "map.png", AlignmentItem(["a"], [], np.empty((0, 1))))


def test_a_page_has_every_cell_and_no_markup_of_the_words() -> None:
    page = alignment_page([ITEM, AlignmentItem(["a"], [], np.empty((0, 1)))])
    assert page.count("<td style") == 6
    assert 'title="ein - a: 1.000"' in page
    assert "&lt;end&gt;" in page
    assert "<end>" not in page
    assert "<b>" not in page
    assert "//" not in page  # It loads nothing.
    assert "--w:0.750" in page
