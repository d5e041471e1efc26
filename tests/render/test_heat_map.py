from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from captioner.render import draw_heat_map


@pytest.fixture
def axis() -> Axes:
    figure = Figure(figsize=(3, 2))
    FigureCanvasAgg(figure)
    return figure.subplots()


def colours(axis: Axes) -> np.ndarray:
    """The colour (rows, columns, 3) of each cell, between 0 and 1."""
    (image,) = axis.images
    return image.to_rgba(image.get_array())[..., :3]


def test_white_is_zero_blue_above_and_orange_below(axis: Axes) -> None:
    draw_heat_map(axis, [[0.0, 2.0, -2.0, 5.0]], full=2.0)
    white, blue, orange, beyond = colours(axis)[0]
    assert white.min() > 0.98
    assert blue.argmax() == 2
    assert orange.argmax() == 0
    assert beyond.tolist() == blue.tolist()


def test_words_and_numbers(axis: Axes) -> None:
    draw_heat_map(axis, [[0.25, 1.0]], ["a", "$\\frac$\n"], ["row"], numbers=".2f")
    assert [label.get_text() for label in axis.get_xticklabels()] == ["a", "$\\frac$"]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["row"]
    assert [text.get_text() for text in axis.texts] == ["0.25", "1.00"]
    assert axis.texts[0].get_color() != axis.texts[1].get_color()
    axis.figure.canvas.draw()  # Two dollar signs are no formula.


def test_without_words_there_are_no_ticks(axis: Axes) -> None:
    draw_heat_map(axis, np.zeros((2, 3)))
    assert axis.get_xticklabels() == axis.get_yticklabels() == []
    assert not axis.texts
