"""The one preprocessing: what the encoder sees, where in the photo it lies; augmentation."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from photo_samples import encoded
from PIL import Image, ImageOps
from refusals import refuses
from torch import Tensor

from captioner.schema import from_mapping, to_mapping
from captioner.vision.images import load_image, original_size
from captioner.vision.preprocessing import Augmentation, Preprocessing

CROP = Preprocessing()
SQUASH = Preprocessing(resize="squash")
PLAIN = {"mean": (0.0, 0.0, 0.0), "standard_deviation": (1.0, 1.0, 1.0)}


def photo(width: int, height: int) -> Image.Image:
    """Smooth waves of three colours, as photos are smooth where they are shrunk."""
    down, across = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    waves = np.sin([down * 9 + across * 4, down * 5 - across * 7, across * 11])
    return Image.fromarray((waves.transpose(1, 2, 0) * 110 + 128).astype(np.uint8))


def by_torchvision(image: Image.Image, preprocessing: Preprocessing) -> Tensor:
    """The same by torchvision: what its ImageNet weights were trained and measured with."""
    # Heavy, and needed for the comparison alone.
    from torchvision.transforms import InterpolationMode, functional

    size, interpolation = preprocessing.size, InterpolationMode(preprocessing.interpolation)
    if preprocessing.resize == "squash":
        seen = functional.resize(image, [size, size], interpolation)
    else:
        resized = functional.resize(image, [preprocessing.resize_shorter], interpolation)
        seen = functional.center_crop(resized, [size])
    shares = functional.to_tensor(seen)
    return functional.normalize(shares, preprocessing.mean, preprocessing.standard_deviation)


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("resize", ["crop", "squash"])
@pytest.mark.parametrize("size", [(300, 300), (100, 100), (640, 427), (401, 1001)])
def test_pixels_are_torchvisions(size: tuple[int, int], resize: str, interpolation: str) -> None:
    preprocessing = Preprocessing(resize=resize, interpolation=interpolation, **PLAIN)
    difference = preprocessing(photo(*size)) - by_torchvision(photo(*size), preprocessing)
    # torchvision rounds the scaled size and the corner of the crop to whole pixels; we do not.
    is_square = size[0] == size[1]
    assert difference.abs().mean() < (1e-6 if is_square else 1.5 / 255)
    assert difference.abs().max() < (1e-5 if is_square else 6 / 255)


def test_bytes_become_the_same_numbers_in_an_array_and_in_a_tensor() -> None:
    """To the last bit: with ONNX graphs a caption is the same without torch."""
    levels = np.tile(np.arange(256, dtype=np.uint8), (2, 3, 5, 1))  # (2, 3, 5, 256)
    both = np.array([CROP.mean, CROP.standard_deviation], np.float32)
    mean, deviation = both[:, :, None, None]  # (3, 1, 1)
    expected = (levels.astype(np.float32) / 255 - mean) / deviation
    channels_last = torch.from_numpy(levels).to(memory_format=torch.channels_last)
    for found in (CROP.normalise(levels), CROP.normalise(channels_last).numpy()):
        assert found.dtype == np.float32
        assert np.array_equal(found, expected)
    pixels = CROP.pixels(photo(300, 200))
    assert torch.equal(CROP(photo(300, 200)), torch.from_numpy(CROP.normalise(pixels)))


@pytest.mark.parametrize("preprocessing", [CROP, SQUASH])
@pytest.mark.parametrize("size", [(800, 500), (431, 977), (640, 640)])
@pytest.mark.parametrize("place", [(0.1, 0.1), (0.9, 0.15)])
def test_a_mark_is_seen_where_the_region_says(preprocessing, size, place) -> None:
    left, top, right, bottom = preprocessing.region(*size)
    # A bright 40 x 40 square whose centre is at `place` of the region.
    x = round(left + place[0] * (right - left))
    y = round(top + place[1] * (bottom - top))
    image = Image.new("RGB", size)
    image.paste((255, 255, 255), (x - 20, y - 20, x + 20, y + 20))
    seen = preprocessing.replace(**PLAIN)(image)[0]  # (224, 224)
    middles = torch.arange(224) + 0.5
    found_x = float((seen.sum(dim=0) * middles).sum() / seen.sum())
    found_y = float((seen.sum(dim=1) * middles).sum() / seen.sum())
    assert found_x == pytest.approx((x - left) / (right - left) * 224, abs=0.1)
    assert found_y == pytest.approx((y - top) / (bottom - top) * 224, abs=0.1)


def test_a_photo_that_lies_on_its_side_is_turned_before_it_is_cut() -> None:
    image = photo(400, 200).convert("L")
    turned = image.rotate(-90, expand=True).convert("RGB")
    image.getexif()[0x0112] = 6
    assert (CROP.pixels(image) == CROP.pixels(turned)).all()


def test_a_photo_is_loaded_as_far_as_the_encoder_needs() -> None:
    large = encoded(photo(4_000, 3_000), "JPEG", quality=95)
    loaded = CROP.load(large)
    assert original_size(loaded) == (4_000, 3_000)
    assert loaded.size == (1_000, 750)  # Decoded at a quarter: at least 512 pixels a side.
    assert (CROP(loaded) - CROP(load_image(large))).abs().mean() < 0.01
    usual = encoded(photo(640, 480), "JPEG", quality=95)
    assert CROP.load(usual).tobytes() == load_image(usual).tobytes()


def test_a_preprocessing_of_other_values_is_refused() -> None:
    wrong = {"resize_shorter": 223, "mean": [0.5, 0.5], "standard_deviation": [0.5, 0.5, 0.0]}
    for field, value in wrong.items():
        values = to_mapping(CROP) | {field: value}
        refuses(f"^x: (field ')?{field}", from_mapping, Preprocessing, values, "x")


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def places(width: int, height: int) -> Image.Image:
    """Every pixel says where it is: red its column, green its row."""
    rows, columns = np.mgrid[:height, :width]
    pixels = np.stack([columns, rows, np.zeros_like(rows)], axis=-1)
    return Image.fromarray(pixels.astype(np.uint8))


@given(st.integers(1, 200), st.integers(1, 200), st.floats(0.05, 0.99), st.integers(0, 2**31))
def test_a_cut_is_a_part_of_the_photo(width: int, height: int, crop: float, seed: int) -> None:
    cut = np.asarray(Augmentation(crop=crop)(places(width, height), seeded(seed))).astype(int)
    rows, columns = cut.shape[:2]
    assert 1 <= columns <= width
    assert 1 <= rows <= height
    left, top = cut[0, 0, 0], cut[0, 0, 1]
    assert np.array_equal(cut[..., 0], np.tile(left + np.arange(columns), (rows, 1)))
    assert np.array_equal(cut[..., 1].T, np.tile(top + np.arange(rows), (columns, 1)))


def test_every_other_photo_is_mirrored_and_colours_move_within_limits() -> None:
    state = torch.get_rng_state()
    image, mirrored = places(8, 4), ImageOps.mirror(places(8, 4))
    found = [Augmentation(mirror=True)(image, seeded(seed)) for seed in range(200)]
    assert 70 < found.count(mirrored) < 130
    assert found.count(mirrored) + found.count(image) == 200
    assert found[:9] == [Augmentation(mirror=True)(image, seeded(seed)) for seed in range(9)]
    grey = Image.new("RGB", (4, 4), (100, 100, 100))  # Brightness alone changes it.
    coloured = [Augmentation(colour=0.3)(grey, seeded(seed)) for seed in range(200)]
    levels = [int(np.asarray(each)[0, 0, 0]) for each in coloured]
    assert 69 <= min(levels) < 80
    assert 120 < max(levels) <= 131
    assert torch.equal(torch.get_rng_state(), state)
