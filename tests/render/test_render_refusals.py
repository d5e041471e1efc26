"""What drawings refuse: names of files in one sentence, wrong shapes as `ValueError`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from render_samples import PHOTO, REGION, attention

from captioner.errors import UserError
from captioner.render.alignment import Alignment, save_heat_map
from captioner.render.animation import frames, save_gif
from captioner.render.overlay import overlay
from captioner.render.page import PageCaption, PageItem, save_html
from captioner.render.panels import panels
from captioner.render.region import check_region
from captioner.render.save import save_picture

EVEN = np.full((14, 14), 1 / 196)
NAN = float("nan")


def test_names_of_files(tmp_path: Path) -> None:
    item = Alignment(["a"], ["ein"], [[1.0]])
    drawing = PHOTO, ["dog"], attention(1), REGION
    for name, save, sentence in (
        ("a.gif", lambda path: save_picture(path, PHOTO), r"a\.gif: its name must end in \.png or"),
        ("a", lambda path: save_picture(path, PHOTO), r"must end in \.png"),
        ("a.png", lambda path: save_gif(path, *drawing), r"must end in \.gif"),
        ("a.pdf", lambda path: save_html(path, []), r"must end in \.html or \.htm"),
        ("a.txt", lambda path: save_heat_map(path, item), r"must end in \.png or \.pdf or \.svg"),
    ):
        with pytest.raises(UserError, match=sentence):
            save(tmp_path / name)
    with pytest.raises(UserError, match="the translation is empty"):
        save_heat_map(tmp_path / "a.png", Alignment(["a"], [], np.empty((0, 1))))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("region", [(0, 0, 91, 60), (-1, 0, 5, 5), (4, 0, 4, 5), (NAN, 0, 5, 5)])
def test_regions(region: Any) -> None:
    for draw in (
        lambda: check_region(region, PHOTO.size),
        lambda: overlay(PHOTO, EVEN, region),
        lambda: PageItem.of(PHOTO, region, [PageCaption(["dog"], attention(1))]),
    ):
        with pytest.raises(ValueError, match="not a rectangle inside a 90x60 photo"):
            draw()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[np.nan, 1.0]], "attention map 0 is not of weights >= 0 that sum to 1"),
        ([[-0.5, 1.5]], "not of weights >= 0"),
        ([[3.0, 4.0]], "that sum to 1"),
        ([0.5, 0.5], r"must have shape \(T, rows, columns\)"),
        ([["a"]], "could not convert string to float"),
        (np.zeros((0, 4)), r"must have shape \(T, rows, columns\)"),
    ],
)
def test_maps(weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        overlay(PHOTO, weights, REGION)


@pytest.mark.parametrize("strength", [-0.1, 1.1, NAN])
def test_strengths(strength: float) -> None:
    with pytest.raises(ValueError, match="strength"):
        overlay(PHOTO, EVEN, REGION, strength)


def test_another_number_of_maps_than_words() -> None:
    for draw in (
        lambda: frames(PHOTO, ["dog"], attention(2), REGION),
        lambda: panels(PHOTO, ["dog"], attention(2), REGION),
        lambda: PageItem.of(PHOTO, REGION, [PageCaption(["dog"], attention(2))]),
    ):
        with pytest.raises(ValueError, match="1 words but 2 attention maps"):
            draw()
