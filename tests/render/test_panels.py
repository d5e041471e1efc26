from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from captioner.render.overlay import overlay
from captioner.render.panels import panels
from captioner.render.region import fit

Attention = Callable[[int], npt.NDArray[np.float64]]

WORDS = ["a", "dog", "runs"]
REGION = (15.0, 0.0, 75.0, 60.0)


def _find(picture: Image.Image, part: Image.Image) -> list[tuple[int, int]]:
    """Every (left, top) at which `part` stands in `picture`, pixel for pixel."""
    whole, wanted = np.asarray(picture).astype(int), np.asarray(part).astype(int)
    height, width = wanted.shape[:2]
    corner = (whole[: len(whole) - height + 1, : whole.shape[1] - width + 1] == wanted[0, 0]).all(2)
    return [
        (int(left), int(top))
        for top, left in np.argwhere(corner)
        if (whole[top : top + height, left : left + width] == wanted).all()
    ]


def test_photo_comes_first_then_a_panel_a_word_in_order(
    photo: Image.Image, attention: Attention
) -> None:
    maps = attention(3)
    drawn = panels(photo, WORDS, maps, REGION, columns=2)
    small, region = fit(photo, REGION, 260)
    assert small.size == (260, 173)
    places = [_find(drawn, small)] + [_find(drawn, overlay(small, m, region)) for m in maps]
    assert [len(found) for found in places] == [1, 1, 1, 1]
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = (found[0] for found in places)
    assert x0 == x2 < x1 == x3
    assert y0 == y1 < y2 == y3


def test_word_is_written_above_its_panel(photo: Image.Image, attention: Attention) -> None:
    maps = attention(3)
    one = panels(photo, WORDS, maps, REGION, caption="", columns=4)
    other = panels(photo, ["a", "cat", "runs"], maps, REGION, caption="", columns=4)
    changed = np.argwhere((np.asarray(one) != np.asarray(other)).any(axis=2))
    small, region = fit(photo, REGION, 260)
    (left, top), *_ = _find(one, overlay(small, maps[1], region))
    assert (changed[:, 0] < top).all()
    assert (changed[:, 0] > top - 40).all()
    assert ((changed[:, 1] >= left) & (changed[:, 1] < left + 260)).all()


@pytest.mark.parametrize(("count", "columns"), [(3, 4), (4, 5), (5, 3), (9, 5), (10, 4), (14, 5)])
def test_columns_are_evenly_filled(
    photo: Image.Image, attention: Attention, count: int, columns: int
) -> None:
    drawn = panels(photo, ["word"] * count, attention(count), REGION, panel_size=120)
    assert drawn.width == 2 * 24 + columns * 120 + (columns - 1) * 16


@pytest.mark.parametrize("size", [(400, 20), (20, 400), (2, 1000), (90, 60)])
def test_keeps_the_shape_of_the_photo(attention: Attention, size: tuple[int, int]) -> None:
    photo = Image.new("RGB", size, (10, 200, 30))
    drawn = panels(photo, ["dog"], attention(1), (0, 0, *size))
    small, _ = fit(photo, (0, 0, *size), 260)
    assert max(small.size) == 260
    for side, original in zip(small.size, size, strict=True):
        assert abs(side - max(1, original * 260 / max(size))) <= 0.5
    assert _find(drawn, small)


def test_crop_of_a_very_long_photo_may_be_less_than_a_pixel_wide(attention: Attention) -> None:
    photo = Image.new("RGB", (6000, 6), "red")
    assert panels(photo, ["dog"], attention(1), (2997.3, 0, 3003.3, 6)).width > 500


def test_words_no_font_has_and_very_long_ones_do_not_stop_it(
    photo: Image.Image, attention: Attention
) -> None:
    words = ["犬", "\u200b", "x" * 200, "naïve\udc80", "two words", "🐕", "\x07bell"]
    drawn = panels(photo, words, attention(7), REGION, title="\udcff\n", panel_size=100)
    assert drawn.width == 4 * 120 + 3 * 16 + 2 * 24  # cells are no narrower than a short word
    with pytest.raises(ValueError, match="word 1 is"):
        panels(photo, ["a", " "], attention(2), REGION)


def test_long_caption_wraps_and_makes_it_higher(photo: Image.Image, attention: Attention) -> None:
    short = panels(photo, ["dog"], attention(1), REGION, caption="a dog")
    long = panels(photo, ["dog"], attention(1), REGION, caption="a very good dog " * 12)
    assert long.width == short.width
    assert long.height > short.height


def test_probabilities_title_and_caption_are_written(
    photo: Image.Image, attention: Attention
) -> None:
    bare = panels(photo, WORDS, attention(3), REGION, caption="")
    titled = panels(photo, WORDS, attention(3), REGION, caption="", title="dog.jpg")
    noted = panels(photo, WORDS, attention(3), REGION, caption="", probabilities=[0.5, 1, 0])
    captioned = panels(photo, WORDS, attention(3), REGION)
    assert bare.height < min(titled.height, noted.height, captioned.height)


def test_refuses_what_does_not_fit(photo: Image.Image, attention: Attention) -> None:
    with pytest.raises(ValueError, match="3 words but 2 attention maps"):
        panels(photo, WORDS, attention(2), REGION)
    with pytest.raises(ValueError, match="at least one word"):
        panels(photo, [], attention(3), REGION)
    with pytest.raises(ValueError, match="not one string"):
        panels(photo, "dog", attention(3), REGION)
    with pytest.raises(ValueError, match="3 words but 1 probabilities"):
        panels(photo, WORDS, attention(3), REGION, probabilities=[0.5])
    with pytest.raises(ValueError, match=r"probability 1 is 1\.5"):
        panels(photo, WORDS, attention(3), REGION, probabilities=[0.5, 1.5, 0.5])
    with pytest.raises(ValueError, match="columns is 0"):
        panels(photo, WORDS, attention(3), REGION, columns=0)
    with pytest.raises(ValueError, match=r"shape \(T, rows, columns\)"):
        panels(photo, WORDS, attention(3)[0], REGION)
