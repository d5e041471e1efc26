import numpy as np
import pytest
from PIL import Image
from render_samples import PHOTO, REGION, Floats, one_hot

from captioner.render.overlay import STYLE, brightness, fit, overlay, upsample


def _values(picture: Image.Image) -> Floats:
    return np.asarray(picture, dtype=np.float64)


def test_strength_zero_leaves_the_photo_as_it_is() -> None:
    before = PHOTO.copy()
    assert overlay(PHOTO, one_hot(14, 14, 2, 3), REGION, strength=0) == before
    overlay(PHOTO, one_hot(14, 14, 2, 3), REGION)
    assert before == PHOTO


def test_light_comes_from_the_map_and_what_was_not_seen_is_hatched() -> None:
    photo = Image.new("RGB", (400, 200), (150, 150, 150))
    drawn = _values(overlay(photo, one_hot(14, 14, 7, 0), (100, 0, 300, 200))).mean(axis=2)
    assert 100 <= drawn[:, 100:114].max(axis=1).argmax() < 115  # rows of the cell
    assert drawn[107, 107] > 130  # the centre of the cell
    outside, unlit_inside = drawn[:, :99], drawn[:40, 220:260]
    assert unlit_inside.std() < 1
    assert 2 * outside.min() < outside.max() <= unlit_inside.max() + 1  # Hatched.


def test_even_map_looks_even_and_noise_of_a_flat_one_is_not_blown_up() -> None:
    photo = Image.new("RGB", (123, 77), (90, 140, 200))
    drawn = _values(overlay(photo, np.full((14, 14), 1 / 196), (0, 0, 123, 77)))
    assert (drawn == drawn[0, 0]).all()
    noise = np.random.default_rng(1).uniform(0.9, 1.1, (14, 14))
    light = brightness(upsample(noise / noise.sum(), (140, 140), (0, 0, 140, 140)), 196)
    assert light.max() - light.min() < 0.2 / STYLE.flat_peak
    assert light.max() < 0.5  # so no contour is drawn either


def test_line_runs_where_the_light_is_half() -> None:
    photo = Image.new("RGB", (420, 420), (0, 0, 0))  # 30 pixels a cell; only line and tint show
    weights = one_hot(14, 14, 7, 7)
    drawn = _values(overlay(photo, weights, (0, 0, 420, 420), strength=1))
    light = brightness(upsample(weights, (420, 420), (0, 0, 420, 420)), 196)
    white = drawn[..., 2] > 160
    assert white.any()
    assert np.abs(light[white] - STYLE.contour_level).max() < 0.05


@pytest.mark.parametrize("around", [10, 200])
def test_a_dark_subject_can_be_seen_under_the_light(around: int) -> None:
    """A dark shape in a dark or a bright photo: its two greys are further apart when lit."""
    photo = Image.new("RGB", (280, 280), (around,) * 3)
    photo.paste((12, 12, 12), (190, 50, 230, 70))
    photo.paste((40, 40, 40), (190, 70, 230, 90))
    drawn = _values(overlay(photo, one_hot(14, 14, 3, 10), (0, 0, 280, 280)))
    darker, brighter = drawn[64, 210].mean(), drawn[76, 210].mean()
    assert brighter - darker > 1.15 * (40 - 12)


def test_values_of_the_spline_by_hand() -> None:
    # One pixel a cell: each pixel is a cell's centre, where a cubic B-spline is 2/3, beside it 1/6.
    whole = (5, 5), (0, 0, 5, 5)
    drawn = upsample(one_hot(5, 5, 2, 2), *whole)
    line = np.array([0, 1 / 6, 2 / 3, 1 / 6, 0])
    np.testing.assert_allclose(drawn, np.outer(line, line), atol=1e-12)
    # In a corner the outermost cell also stands for the one beyond it: 2/3 + 1/6.
    corner = upsample(one_hot(5, 5, 0, 4), *whole)
    down, across = np.array([5 / 6, 1 / 6, 0, 0, 0]), np.array([0, 0, 0, 1 / 6, 5 / 6])
    np.testing.assert_allclose(corner, np.outer(down, across), atol=1e-12)
    # Pixels whose centre is in the region: columns 0 to 8, rows 1 to 4.
    placed = upsample(np.ones((1, 1)), (10, 5), (0.4, 0.6, 9.4, 4.6))
    np.testing.assert_allclose(placed, np.pad(np.ones((4, 9)), ((1, 0), (0, 1))))


def test_fit_scales_photo_and_region_alike() -> None:
    photo, region = fit(Image.new("L", (400, 200)), (100, 0, 300, 200), 100)
    assert (photo.size, photo.mode, region) == ((100, 50), "RGB", (25, 0, 75, 50))
    small = Image.new("RGB", (40, 20))
    assert fit(small, (0, 0, 40, 20), 100, enlarge=False) == (small, (0, 0, 40, 20))
    overlay(small, one_hot(4, 4, 1, 1), (-1e-6, 0, 40 + 1e-6, 20))  # Rounding.
