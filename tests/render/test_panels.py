import numpy as np
import pytest
from PIL import Image
from render_samples import PHOTO, REGION, attention

from captioner.render.overlay import overlay
from captioner.render.panels import panels
from captioner.render.region import fit
from captioner.render.typography import DOUBT_INK

WORDS = ["a", "dog", "runs"]


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


def test_photo_comes_first_then_a_panel_a_word_in_order() -> None:
    maps = attention(7)
    drawn = panels(PHOTO, ["dogs", "runs", "fast", "dogs", "runs", "dogs", "runs"], maps, REGION)
    large, region = fit(PHOTO, REGION, 260)
    assert large.size == (260, 173)
    places = [_find(drawn, large)] + [_find(drawn, overlay(large, m, region)) for m in maps]
    assert [len(found) for found in places] == [1] * 8
    ((x0, y0), (x1, y1), _, _, (x4, y4), *_) = (found[0] for found in places)
    assert x0 == x4 < x1
    assert y0 == y1 < y4


def test_function_words_of_the_language_have_small_panels() -> None:
    maps = attention(3)
    half = (260 - 16) // 2
    large, small = fit(PHOTO, REGION, 260), fit(PHOTO, REGION, half)
    counts = []
    for language in ("en", "de", "fr"):
        drawn = panels(PHOTO, ["der", "Hund", "d'une"], maps, REGION, language=language)
        places = [_find(drawn, overlay(large[0], each, large[1])) for each in maps]
        counts.append([len(found) for found in places])
        if language == "de":  # Of half the size, with a gap before the next.
            ((left, top),) = _find(drawn, overlay(small[0], maps[0], small[1]))
            assert places[1] == [(left + half + 16, top)]
            assert drawn.width == 2 * 24 + 3 * 260 + half + 3 * 16
    assert counts == [[1, 1, 1], [0, 1, 1], [1, 1, 0]]


def test_word_is_written_above_its_panel() -> None:
    maps = attention(3)
    one = panels(PHOTO, WORDS, maps, REGION)
    other = panels(PHOTO, ["a", "cat", "runs"], maps, REGION)
    changed = np.argwhere((np.asarray(one) != np.asarray(other)).any(axis=2))
    large, region = fit(PHOTO, REGION, 260)
    (left, top), *_ = _find(one, overlay(large, maps[1], region))
    assert (changed[:, 0] < top).all()
    changed = changed[changed[:, 0] > top - 40]  # The others are in the caption on top.
    assert len(changed)
    assert ((changed[:, 1] >= left) & (changed[:, 1] < left + 260)).all()


@pytest.mark.parametrize(("count", "columns"), [(3, 4), (5, 3), (10, 4), (14, 5)])
def test_rows_are_evenly_filled(count: int, columns: int) -> None:
    drawn = panels(PHOTO, ["word"] * count, attention(count), REGION)
    assert drawn.width == 2 * 24 + columns * 260 + (columns - 1) * 16


@pytest.mark.parametrize(("width", "columns"), [(300, 5), (800, 2), (4000, 1)])
def test_a_panorama_s_panels_fill_the_sheet(width: int, columns: int) -> None:
    photo = Image.linear_gradient("L").resize((width, 200)).convert("RGB")
    maps = attention(10)
    drawn = panels(photo, ["word"] * 10, maps, (0, 0, width, 200))
    assert drawn.width <= 2 * 24 + 5 * 260 + 4 * 16
    across = (5 * 260 + 4 * 16 - (columns - 1) * 16) // columns
    large, region = fit(photo, (0, 0, width, 200), across)
    assert _find(drawn, overlay(large, maps[9], region))


def test_words_no_font_has_and_very_long_ones_do_not_stop_it() -> None:
    words = ["犬", "\u200b", "x" * 200, "naïve\udc80", "two words", "🐕", "\x07bell"]
    drawn = panels(PHOTO, words, attention(7), REGION, title="\udcff\n", panel_size=100)
    assert drawn.width == 4 * 136 + 3 * 16 + 2 * 24  # cells are no narrower than a short word


def test_probabilities_title_and_doubt_are_written() -> None:
    drawing = PHOTO, WORDS, attention(3), REGION
    bare = panels(*drawing)
    titled = panels(*drawing, title="dog.jpg")
    noted = panels(*drawing, probabilities=[0.5, 1, 0])
    doubted = panels(*drawing, doubt="not sure")
    assert bare.height < min(each.height for each in (titled, noted, doubted))
    assert (np.asarray(doubted) == DOUBT_INK).all(axis=2).any()
    legend = np.asarray(noted)[-24 - 20 : -24]  # Below the panels.
    assert (legend != 255).any()
    german = panels(*drawing, probabilities=[0.5, 1, 0], language="de")
    assert np.asarray(german)[-44:].tolist() != np.asarray(noted)[-44:].tolist()
