import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from captioner.render.alignment import Alignment, alignment_page, draw_heat_map, save_heat_map

ALIGNMENT = Alignment(
    ["a", "man", "<end>"], ["ein", "$\\frac$"], [[1.0, 0.0, 0.0], [0.0, 0.75, 0.25]]
)


def test_letters_that_matplotlibs_own_font_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arc is in another of the fonts that come with it, the Chinese dog in none of them."""
    monkeypatch.setattr("captioner.render.alignment._FONTS", ("DejaVu Sans", "STIXGeneral"))
    item = Alignment(["\u2312", "ä\u72ac"], ["a"], [[1.0, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert save_heat_map(tmp_path / "map.png", item) == "\u72ac"
    drawn = np.asarray(Image.open(tmp_path / "map.png").convert("RGB")).astype(int)
    full = (np.abs(drawn - np.array([0x1F, 0x5F, 0xD0])).sum(axis=-1) < 12).mean()
    assert 0.01 < full < (drawn.sum(axis=-1) < 765).mean() < 1  # Dark where was looked.


def test_a_page_has_every_cell_and_no_markup_of_the_words() -> None:
    page = alignment_page([("ein <b>", ALIGNMENT), ("", Alignment(["a"], [], np.empty((0, 1))))])
    assert page.count("<td style") == 6
    assert 'title="ein - a: 1.000"' in page
    assert "&lt;end&gt;" in page
    assert "--w:0.750" in page
    assert not any(sign in page for sign in ("<end>", "<b>", "//"))  # It loads nothing.


@pytest.fixture
def axis() -> Axes:
    figure = Figure(figsize=(3, 2))
    FigureCanvasAgg(figure)
    return figure.subplots()


def test_white_is_zero_blue_above_and_orange_below(axis: Axes) -> None:
    draw_heat_map(axis, [[0.0, 2.0, -2.0, 5.0]], full=2.0)
    (image,) = axis.images
    white, blue, orange, beyond = image.to_rgba(image.get_array())[0, :, :3]
    assert (white.min() > 0.98, blue.argmax(), orange.argmax()) == (True, 2, 0)
    assert beyond.tolist() == blue.tolist()


def test_words_and_numbers(axis: Axes) -> None:
    draw_heat_map(axis, [[0.25, 1.0]], ["a", "$\\frac$\n"], ["row"], numbers=".2f")
    assert [label.get_text() for label in axis.get_xticklabels()] == ["a", "$\\frac$"]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["row"]
    assert [text.get_text() for text in axis.texts] == ["0.25", "1.00"]
    assert axis.texts[0].get_color() != axis.texts[1].get_color()
    axis.figure.canvas.draw()  # Two dollar signs are no formula.
