from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from captioner.vision.preprocessing import Augmentation


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def places(width: int, height: int) -> Image.Image:
    """Every pixel says where it is: red its column, green its row."""
    rows, columns = numpy.mgrid[:height, :width]
    pixels = numpy.stack([columns, rows, numpy.zeros_like(rows)], axis=-1)
    return Image.fromarray(pixels.astype(numpy.uint8))


def test_by_default_a_photo_stays_as_it_is() -> None:
    photo = places(40, 30)
    assert not Augmentation().changes
    assert Augmentation()(photo, seeded(0)) == photo


@given(st.integers(1, 200), st.integers(1, 200), st.floats(0.05, 0.99), st.integers(0, 2**31))
def test_a_cut_is_a_part_of_the_photo(width: int, height: int, crop: float, seed: int) -> None:
    cut = numpy.asarray(Augmentation(crop=crop)(places(width, height), seeded(seed))).astype(int)
    rows, columns = cut.shape[:2]
    assert 1 <= columns <= width
    assert 1 <= rows <= height
    left, top = cut[0, 0, 0], cut[0, 0, 1]
    assert numpy.array_equal(cut[..., 0], numpy.tile(left + numpy.arange(columns), (rows, 1)))
    assert numpy.array_equal(cut[..., 1].T, numpy.tile(top + numpy.arange(rows), (columns, 1)))


def test_shares_are_even_and_aspect_ratios_within_three_quarters() -> None:
    photo = Image.new("RGB", (120, 100))
    sizes = [Augmentation(crop=0.2)(photo, seeded(seed)).size for seed in range(400)]
    shares = torch.tensor([width * height / 12_000 for width, height in sizes])
    assert 0.18 < float(shares.min()) < 0.22
    assert float(shares.max()) > 0.9
    fitting = shares[shares < 0.6]  # Such a cut fits at any aspect ratio.
    assert float(fitting.mean()) == pytest.approx(0.4, abs=0.03)
    ratios = [width / height for width, height in sizes]
    assert 0.73 < min(ratios) < 0.78
    assert 1.28 < max(ratios) < 1.37


def test_the_global_generator_is_left_as_it_is() -> None:
    state = torch.get_rng_state()
    augmentation = Augmentation(crop=0.5, mirror=True, colour=0.3)
    first, second, other = (augmentation(places(60, 50), seeded(seed)) for seed in (1, 1, 2))
    assert first == second != other
    assert torch.equal(torch.get_rng_state(), state)


def test_every_other_photo_is_mirrored() -> None:
    photo = places(8, 4)
    found = [Augmentation(mirror=True)(photo, seeded(seed)) for seed in range(200)]
    mirrored = [numpy.asarray(each)[0, 0, 0] == 7 for each in found]
    assert 70 < sum(mirrored) < 130
    for each, turned in zip(found, mirrored, strict=True):
        expected = numpy.asarray(photo)[:, :: -1 if turned else 1]
        assert numpy.array_equal(numpy.asarray(each), expected)


def test_colours_move_no_further_than_said() -> None:
    photo = Image.new("RGB", (4, 4), (100, 100, 100))  # Grey: brightness alone changes it.
    found = [
        int(numpy.asarray(Augmentation(colour=0.3)(photo, seeded(seed)))[0, 0, 0])
        for seed in range(200)
    ]
    assert 69 <= min(found) < 80
    assert 120 < max(found) <= 131
