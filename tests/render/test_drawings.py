"""Pictures of panels, GIFs and heat maps."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageSequence
from render_samples import PHOTO, REGION, attention

from captioner.render import typography
from captioner.render.alignment import Alignment, alignment_page, heat_map, save_heat_map
from captioner.render.overlay import MappedCaption, fit, overlay
from captioner.render.panels import FRAME_MARGIN, HIGHLIGHT, frames, panels, save_gif
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
    words = ["dogs", "runs", "fast", "dogs", "runs", "dogs", "runs"]
    drawn = panels(PHOTO, REGION, MappedCaption(words, maps))
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
        caption = MappedCaption(["der", "Hund", "d'une"], maps, language=language)
        drawn = panels(PHOTO, REGION, caption)
        places = [_find(drawn, overlay(large[0], each, large[1])) for each in maps]
        counts.append([len(found) for found in places])
        if language == "de":  # Of half the size, with a gap before the next.
            ((left, top),) = _find(drawn, overlay(small[0], maps[0], small[1]))
            assert places[1] == [(left + half + 16, top)]
            assert drawn.width == 2 * 24 + 3 * 260 + half + 3 * 16
    assert counts == [[1, 1, 1], [0, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize(("count", "columns"), [(3, 4), (5, 3), (10, 4), (14, 5)])
def test_rows_are_evenly_filled(count: int, columns: int) -> None:
    drawn = panels(PHOTO, REGION, MappedCaption(["word"] * count, attention(count)))
    assert drawn.width == 2 * 24 + columns * 260 + (columns - 1) * 16


def test_words_no_font_has_and_very_long_ones_do_not_stop_it() -> None:
    words = ["犬", "\u200b", "x" * 200, "naïve\udc80", "two words", "🐕", "\x07bell"]
    caption = MappedCaption(words, attention(7))
    drawn = panels(PHOTO, REGION, caption, title="\udcff\n", panel_size=100)
    assert drawn.width == 4 * 136 + 3 * 16 + 2 * 24  # cells are no narrower than a short word


def test_probabilities_title_and_doubt_are_written() -> None:
    plain = MappedCaption(WORDS, attention(3))
    unlikely = replace(plain, word_confidence=[None, 1, 0])
    noted = panels(PHOTO, REGION, unlikely)
    german = panels(PHOTO, REGION, replace(unlikely, language="de"))
    titled = panels(PHOTO, REGION, plain, title="dog.jpg")
    doubted = panels(PHOTO, REGION, replace(plain, doubt="not sure"))
    least = min(each.height for each in (titled, noted, doubted))
    assert panels(PHOTO, REGION, plain).height < least
    assert (np.asarray(doubted) == DOUBT_INK).all(axis=2).any()
    sure = panels(PHOTO, REGION, replace(plain, word_confidence=[None, 1, 0.5]))
    dark = [int((np.asarray(each)[:, :, 0] < 40).sum()) for each in (noted, sure)]
    assert dark[0] < dark[1]  # The doubtful last word is paler.
    legend = np.asarray(noted)[-44:]  # Below the panels.
    assert (legend != 255).any()
    assert np.asarray(german)[-44:].tolist() != legend.tolist()


# GIFs

SIX = [*WORDS, "over", "the", "grass"]


def _highlighted_columns(frame: Image.Image) -> npt.NDArray[np.int64]:
    values = np.asarray(frame.convert("RGB")).astype(int)
    near = (np.abs(values - HIGHLIGHT).max(axis=2) < 25)[-40:]
    return np.flatnonzero(near.any(axis=0))


def test_one_frame_a_word_for_the_given_time_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    maps = attention(6)[[0, 0, 1, 2, 3, 4]]  # The same word and map twice keeps its two frames.
    drawn = frames(PHOTO, REGION, MappedCaption(["a", *SIX[:5]], maps))
    save_gif(path, drawn)
    with Image.open(path) as written:
        assert (written.format, written.info["loop"]) == ("GIF", 0)
        for expected, frame in zip(drawn, ImageSequence.Iterator(written), strict=True):
            assert frame.info["duration"] == 800
            difference = np.asarray(frame.convert("RGB")).astype(int) - np.asarray(expected)
            assert np.abs(difference).mean() < 8
    assert list(tmp_path.iterdir()) == [path]


def test_highlight_walks_through_the_words() -> None:
    caption = MappedCaption(SIX, attention(6))
    drawn = frames(PHOTO, REGION, caption)
    assert len({frame.size for frame in drawn}) == 1
    spans = [_highlighted_columns(frame) for frame in drawn]
    for before, after in itertools.pairwise(spans):
        assert (before.min() < after.min(), before.max() < after.max()) == (True, True)
    sure = [0.5, None, 0.9, 0.1, None, 1.0]
    confident = replace(caption, word_confidence=sure)
    likely = [np.asarray(each) for each in frames(PHOTO, REGION, confident)]
    below = [each[drawn[0].height - FRAME_MARGIN :] for each in likely]
    assert [(each < 200).any() for each in below] == [share is not None for share in sure]
    unsure = np.asarray(frames(PHOTO, REGION, replace(caption, doubt="not sure"))[0])
    above = drawn[0].height - FRAME_MARGIN
    assert (np.asarray(drawn[0])[:above] == unsure[:above]).all()
    assert (unsure[above:] == DOUBT_INK).all(axis=2).any()


# Heat maps

ALIGNMENT = Alignment(["a", "man", "<end>"], ["ein", "$\\frac$"], [[1, 0, 0], [0, 0.75, 0.25]])


def test_letters_of_no_font_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typography, "_FONTS", typography._FONTS[:1])
    drawn = Alignment(["\u72ac", "ä"], ["a"], [[1.0, 0.0]])
    assert save_heat_map(tmp_path / "map.png", drawn) == "\u72ac"


def test_a_heat_map_has_a_cell_for_each_pair_white_at_0() -> None:
    drawn = np.asarray(heat_map(ALIGNMENT)).astype(int)
    height, width = drawn.shape[:2]
    full = (drawn == (31, 95, 208)).all(axis=2)
    ((top, left), (bottom, right)) = (f(np.argwhere(full), axis=0) for f in (np.min, np.max))
    assert (bottom - top, right - left) == (46, 46)  # A cell within its lines.
    assert not full[:, right + 1 :].any()
    row, column = top + 24, left + 24  # Middles of cells.
    assert drawn[row, column + 48].tolist() == [255, 255, 255]
    assert drawn[row + 48, column + 48].tolist() == [87, 135, 220]  # Three quarters.
    assert (drawn[top:bottom, : left - 2] < 100).any(axis=(0, 2)).any()  # A word beside its row.
    assert (drawn[: top - 2, left:] < 100).any()  # The words above.
    assert width > height


@pytest.mark.parametrize("count", [1, 200, 3000])
def test_a_heat_map_of_many_words_stays_a_picture(count: int) -> None:
    words = [str(number) for number in range(count)]
    drawn = heat_map(Alignment(words, ["a"], np.eye(1, count)))
    assert drawn.width <= 9_200


def test_a_page_has_every_cell_and_no_markup_of_the_words() -> None:
    page = alignment_page([("ein <b>", ALIGNMENT), ("", Alignment(["a"], [], np.empty((0, 1))))])
    assert page.count("<td style") == 6
    assert 'title="ein - a: 1.000"' in page
    assert "&lt;end&gt;" in page
    assert "--w:0.750" in page
    assert page.count("<h1>") == 1
    assert re.findall("<end>|<b>|//", page) == []  # It loads nothing.
