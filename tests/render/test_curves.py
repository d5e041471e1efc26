from __future__ import annotations

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
    save_curves(tmp_path / "one.svg", [panel()], "")
    assert (tmp_path / "one.svg").read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_what_is_drawn_depends_on_the_curves(tmp_path: Path) -> None:
    drawn = []
    for number, given in enumerate((panel(), panel(curve=np.full(6, 0.5)), panel())):
        path = tmp_path / f"{number}.png"
        save_curves(path, [given], "")
        with Image.open(path) as picture:
            drawn.append(np.asarray(picture))
    assert (drawn[0] == drawn[2]).all()
    assert (drawn[0] != drawn[1]).any()


def test_curves_without_bands_are_lines_only(tmp_path: Path) -> None:
    bands = []
    for number, given in enumerate(
        (
            panel(band=None, random_band=None),
            panel(band=None),
            panel(),
        )
    ):
        path = tmp_path / f"{number}.svg"
        save_curves(path, [given], "")
        # Only bands are drawn with this opacity.
        bands.append(path.read_text(encoding="utf-8").count("opacity: 0.16"))
    assert bands == [0, 1, 2]


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"must end in \.png"):
        save_curves(tmp_path / "curves.jpg", [panel()], "")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UserError, match="cannot write"):
        save_curves(tmp_path / "folder.png", [panel()], "")
