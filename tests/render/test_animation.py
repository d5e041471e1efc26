import itertools
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageSequence
from render_samples import PHOTO, REGION, attention

from captioner.render.animation import HIGHLIGHT, MARGIN, frames, save_gif
from captioner.render.typography import DOUBT_INK

WORDS = ["a", "dog", "runs", "over", "the", "grass"]


def _read(path: Path) -> list[npt.NDArray[np.int64]]:
    """The frames (height, width, 3) of a file."""
    with Image.open(path) as written:
        frames = ImageSequence.Iterator(written)
        return [np.asarray(frame.convert("RGB")).astype(int) for frame in frames]


def _highlighted_columns(frame: Image.Image) -> npt.NDArray[np.int64]:
    values = np.asarray(frame.convert("RGB")).astype(int)
    near = (np.abs(values - HIGHLIGHT).max(axis=2) < 25)[-40:]
    return np.flatnonzero(near.any(axis=0))


def test_one_frame_a_word_for_the_given_time_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "a.gif"
    maps = attention(6)[[0, 0, 1, 2, 3, 4]]  # The same word and map twice keeps its two frames.
    drawing = PHOTO, ["a", *WORDS[:5]], maps, REGION
    save_gif(path, *drawing)
    with Image.open(path) as written:
        assert (written.format, written.info["loop"]) == ("GIF", 0)
        durations = [frame.info["duration"] for frame in ImageSequence.Iterator(written)]
    assert durations == [800] * 6
    assert list(tmp_path.iterdir()) == [path]
    for expected, frame in zip(frames(*drawing), _read(path), strict=True):
        assert np.abs(frame - np.asarray(expected)).mean() < 8


def test_highlight_walks_through_the_words() -> None:
    drawn = frames(PHOTO, WORDS, attention(6), REGION)
    assert len({frame.size for frame in drawn}) == 1
    spans = [_highlighted_columns(frame) for frame in drawn]
    for before, after in itertools.pairwise(spans):
        assert before.min() < after.min()
        assert before.max() < after.max()


def test_doubt_stands_below_the_caption() -> None:
    sure = frames(PHOTO, WORDS, attention(6), REGION)
    unsure = frames(PHOTO, WORDS, attention(6), REGION, doubt="not sure")
    for one, other in zip(sure, unsure, strict=True):
        above = one.height - MARGIN
        assert (np.asarray(one)[:above] == np.asarray(other)[:above]).all()
        assert (np.asarray(other)[above:] == DOUBT_INK).all(axis=2).any()


@pytest.mark.parametrize(
    ("size", "drawn"),
    [((1200, 400), (480, 160)), ((9000, 100), (960, 11))],
)
def test_a_panorama_is_drawn_larger(size: tuple[int, int], drawn: tuple[int, int]) -> None:
    for turn in (1, -1):
        width, height = size[::turn]
        photo = Image.new("RGB", (width, height), "red")
        drawing = photo, WORDS[:1], attention(1), (0, 0, width, height)
        frame = np.asarray(frames(*drawing, strength=0)[0])
        is_photo = (frame == (255, 0, 0)).all(axis=2)
        assert (is_photo.any(axis=0).sum(), is_photo.any(axis=1).sum()) == drawn[::turn]
