from __future__ import annotations

import pytest
from PIL import Image

from captioner.render.region import check_region, fit, pixels


def test_fit_scales_photo_and_region_alike() -> None:
    photo, region = fit(Image.new("L", (400, 200)), (100, 0, 300, 200), 100)
    assert photo.size == (100, 50)
    assert photo.mode == "RGB"
    assert region == (25, 0, 75, 50)


def test_fit_enlarges_only_when_asked() -> None:
    small = Image.new("RGB", (40, 20))
    assert fit(small, (0, 0, 40, 20), 100)[0].size == (100, 50)
    assert fit(small, (0, 0, 40, 20), 100, enlarge=False) == (small, (0, 0, 40, 20))


def test_pixels_are_those_with_their_centre_inside() -> None:
    assert pixels((0, 0, 10, 5)) == (0, 0, 10, 5)
    assert pixels((0.4, 0.6, 9.4, 4.6)) == (0, 1, 9, 5)


def test_rounding_at_the_edge_is_forgiven() -> None:
    assert check_region((-1e-6, 0, 10 + 1e-6, 5), (10, 5)) == (0, 0, 10, 5)
    with pytest.raises(ValueError, match="not a rectangle inside a 10x5 photo"):
        check_region((-0.1, 0, 10, 5), (10, 5))


def test_refuses_what_is_no_region() -> None:
    with pytest.raises(ValueError, match="inside"):
        check_region((float("nan"), 0, 5, 5), (10, 5))
