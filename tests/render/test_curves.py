from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from captioner.errors import UserError
from captioner.render.curves import CurvePair, save_curves


def panel(title: str = "Deletion", **changes: object) -> tuple[str, str, CurvePair]:
    shares = np.linspace(0, 1, 6)
    fields = {
        "shares": shares,
        "curve": 1 - shares,
        "band": np.stack([0.9 - 0.9 * shares, 1 - 0.9 * shares]),
        "random_curve": 1 - 0.5 * shares,
        "random_band": np.stack([0.9 - 0.5 * shares, 1 - 0.4 * shares]),
    }
    return title, "blurred", CurvePair(**{**fields, **changes})  # type: ignore[arg-type]


def test_panels_stand_beside_each_other(tmp_path: Path) -> None:
    save_curves(tmp_path / "one.png", [panel()], "mean of 3 words")
    save_curves(tmp_path / "two.png", [panel(), panel(title="Insertion")], "mean of 3 words")
    with Image.open(tmp_path / "one.png") as one, Image.open(tmp_path / "two.png") as two:
        assert two.width == 2 * one.width
        assert two.height == one.height


def test_what_is_drawn_depends_on_the_curves_and_bands(tmp_path: Path) -> None:
    pages = []
    for number, changes in enumerate(
        ({"band": None, "random_band": None}, {"band": None}, {}, {"curve": np.full(6, 0.5)})
    ):
        save_curves(tmp_path / f"{number}.svg", [panel(**changes)], "")
        pages.append((tmp_path / f"{number}.svg").read_text(encoding="utf-8"))
    # Only bands are drawn with this opacity.
    assert [page.count("opacity: 0.16") for page in pages] == [0, 1, 2, 2]
    attended = [re.findall(r'<path d="([^"]*)".*stroke: #c2410c', page) for page in pages]
    assert attended[1] == attended[2] != attended[3] != []


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must end in \.png"):
        save_curves(tmp_path / "curves.jpg", [panel()], "")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        save_curves(tmp_path / "folder.png", [panel()], "")
