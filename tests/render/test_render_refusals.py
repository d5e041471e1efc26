"""What drawings refuse: names of files in one sentence, wrong shapes as `ValueError`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from render_samples import PHOTO, REGION, attention

from captioner.errors import UserError
from captioner.render.alignment import Alignment, save_heat_map
from captioner.render.overlay import overlay
from captioner.render.page import PageCaption, PageItem, save_html
from captioner.render.panels import frames, panels, save_gif
from captioner.render.save import save_picture

EVEN = np.full((14, 14), 1 / 196)
ITEM, EMPTY = Alignment(["a"], ["ein"], [[1.0]]), Alignment(["a"], [], np.empty((0, 1)))
WEIGHTS = "of weights >= 0 that sum to 1"
COUNTS = "argument 2 is longer"


def over(maps: Any) -> Callable[[Path], Any]:
    return lambda _: overlay(PHOTO, maps, REGION)


def item(maps: Any) -> PageItem:
    return PageItem.of(PHOTO, REGION, [PageCaption(["dog"], maps)])


@pytest.mark.parametrize(
    ("draw", "kind", "sentence"),
    [
        (lambda to: save_picture(to / "a.gif", PHOTO), UserError, r"a\.gif: its name must end"),
        (lambda to: save_gif(to / "a.png"), UserError, r"must end in \.gif"),
        (lambda to: save_html(to / "a.pdf", [], 1), UserError, r"must end in \.html or \.htm"),
        (lambda to: save_heat_map(to / "a.txt", ITEM), UserError, r"must end in \.png or"),
        (lambda to: save_heat_map(to / "a.png", EMPTY), UserError, "the translation is empty"),
        (over([[np.nan, 1.0]]), ValueError, WEIGHTS),
        (over([[3.0, 4.0]]), ValueError, WEIGHTS),
        (over([0.5, 0.5]), ValueError, r"a map \(2,\) is not \(rows, columns\)"),
        (over(np.zeros((0, 4))), ValueError, WEIGHTS),
        (lambda _: frames(PHOTO, ["dog"], attention(2), REGION), ValueError, COUNTS),
        (lambda _: panels(PHOTO, ["dog"], attention(2), REGION), ValueError, COUNTS),
        (lambda _: item(attention(2)), ValueError, COUNTS),
    ],
)
def test_sentences(
    tmp_path: Path, draw: Callable[[Path], Any], kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        draw(tmp_path)
    assert list(tmp_path.iterdir()) == []
    crop = (2997.3, 0, 3003.3, 6)  # Less than a pixel wide in a panel.
    assert panels(Image.new("RGB", (6000, 6)), ["dog"], attention(1), crop).width > 500
