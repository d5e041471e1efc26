"""What drawings refuse: names of files in one sentence, wrong shapes as `ValueError`."""

import numpy as np
import pytest
from PIL import Image
from refusals import refuses
from render_samples import PHOTO, REGION, attention

from captioner.render.alignment import Alignment, save_heat_map
from captioner.render.overlay import MappedCaption, overlay, save_picture
from captioner.render.page import PageItem, save_html
from captioner.render.panels import frames, panels, save_gif

ITEM, EMPTY = Alignment(["a"], ["ein"], [[1.0]]), Alignment(["a"], [], np.empty((0, 1)))
WEIGHTS = "of weights >= 0 that sum to 1"
COUNTS = "argument 2 is longer"
CAPTION = MappedCaption(["dog"], attention(2))


@pytest.mark.parametrize(
    ("draw", "arguments", "sentence"),
    [
        (save_picture, ["a.gif", PHOTO], r"a\.gif: its name must end"),
        (save_gif, ["a.png", []], r"must end in \.gif"),
        (save_html, ["a.pdf", [], 1], r"must end in \.html or \.htm"),
        (save_heat_map, ["a.txt", ITEM], r"must end in \.png or"),
        (save_heat_map, ["a.png", EMPTY], "the translation is empty"),
    ],
)
def test_files_of_other_names_are_not_written(tmp_path, draw, arguments, sentence) -> None:
    name, *others = arguments
    refuses(sentence, draw, tmp_path / name, *others)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("draw", "arguments", "sentence"),
    [
        (overlay, [[[np.nan, 1.0]], REGION], WEIGHTS),
        (overlay, [[[3.0, 4.0]], REGION], WEIGHTS),
        (overlay, [[0.5, 0.5], REGION], r"a map \(2,\) is not \(rows, columns\)"),
        (overlay, [np.zeros((0, 4)), REGION], WEIGHTS),
        (frames, [REGION, CAPTION], COUNTS),
        (panels, [REGION, CAPTION], COUNTS),
        (PageItem.of, [REGION, [CAPTION]], COUNTS),
    ],
)
def test_maps_that_do_not_fit_are_mistakes(draw, arguments, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        draw(PHOTO, *arguments)


@pytest.mark.parametrize("width", [-3, 1, 3000])
def test_frames_too_narrow_or_wide_are_refused(width: int) -> None:
    caption = MappedCaption(["dog"], attention(1))
    refuses(f"the width of a GIF, {width},", frames, PHOTO, REGION, caption, 0.8, width)


def test_wide_frames_of_a_very_tall_photo_stay_small() -> None:
    caption = MappedCaption(["dog"], attention(1))
    (frame,) = frames(Image.new("RGB", (2, 200)), (0, 0, 2, 200), caption, width=2048)
    assert frame.width == 2048
    assert frame.height < 4500


def test_a_region_of_less_than_a_pixel_is_drawn() -> None:
    crop = (2997.3, 0, 3003.3, 6)  # Less than a pixel wide in a panel.
    caption = MappedCaption(["dog"], attention(1))
    assert panels(Image.new("RGB", (6000, 6)), crop, caption).width > 500
