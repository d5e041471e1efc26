"""The one preprocessing: what the encoder sees, where in the photo it lies, and its record."""

from __future__ import annotations

import io
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from captioner.errors import UserError
from captioner.schema import from_mapping, to_mapping
from captioner.vision.images import load_image, original_size
from captioner.vision.preprocessing import Preprocessing, read_photo

CROP = Preprocessing()
SQUASH = Preprocessing(resize="squash")
PLAIN = {"mean": (0.0, 0.0, 0.0), "standard_deviation": (1.0, 1.0, 1.0)}


def photo(width: int, height: int) -> Image.Image:
    """Smooth waves of three colours, as photos are smooth where they are shrunk."""
    rows, columns = numpy.mgrid[0:height, 0:width].astype(float)
    waves = [
        numpy.sin(rows / height * 9 + columns / width * 4),
        numpy.cos(rows / height * 5 - columns / width * 7),
        numpy.sin(columns / width * 11),
    ]
    return Image.fromarray((numpy.stack(waves, axis=2) * 110 + 128).astype(numpy.uint8))


def by_torchvision(image: Image.Image, preprocessing: Preprocessing) -> Tensor:
    """The same by torchvision: what its ImageNet weights were trained and measured with."""
    from torchvision import transforms  # heavy, and needed for the comparison alone

    bicubic = transforms.InterpolationMode.BICUBIC
    bilinear = transforms.InterpolationMode.BILINEAR
    interpolation = bicubic if preprocessing.interpolation == "bicubic" else bilinear
    size = preprocessing.size
    if preprocessing.resize == "squash":
        steps = [transforms.Resize((size, size), interpolation)]
    else:
        shorter = transforms.Resize(preprocessing.resize_shorter, interpolation)
        steps = [shorter, transforms.CenterCrop(size)]
    steps.append(transforms.ToTensor())
    steps.append(transforms.Normalize(preprocessing.mean, preprocessing.standard_deviation))
    return transforms.Compose(steps)(image)


# Pixels.


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("resize", ["crop", "squash"])
@pytest.mark.parametrize("size", [(256, 256), (512, 512), (300, 300), (100, 100)])
def test_square_photos_are_exactly_as_by_torchvision(
    size: tuple[int, int], resize: str, interpolation: str
) -> None:
    preprocessing = Preprocessing(resize=resize, interpolation=interpolation)
    torch.testing.assert_close(
        preprocessing(photo(*size)), by_torchvision(photo(*size), preprocessing)
    )


@pytest.mark.parametrize("resize", ["crop", "squash"])
@pytest.mark.parametrize("size", [(640, 427), (375, 500), (333, 777), (1001, 401)])
def test_other_photos_are_nearly_as_by_torchvision(size: tuple[int, int], resize: str) -> None:
    # torchvision rounds the scaled size and the corner of the crop to whole pixels; we do not.
    preprocessing = Preprocessing(resize=resize, **PLAIN)
    difference = preprocessing(photo(*size)) - by_torchvision(photo(*size), preprocessing)
    assert difference.abs().mean() < 1.5 / 255
    assert difference.abs().max() < 6 / 255


def test_a_photo_that_is_not_rgb_is_loaded_first() -> None:
    seen = Preprocessing(**PLAIN)(Image.new("RGBA", (30, 30), (255, 0, 0, 0)))
    torch.testing.assert_close(seen, torch.ones(3, 224, 224))  # transparent, so white


# The region.


def test_the_region_of_a_squash_is_all_of_the_photo() -> None:
    assert SQUASH.region(640, 427) == (0, 0, 640, 427)


@given(st.integers(1, 20_000), st.integers(1, 20_000), st.integers(1, 300), st.integers(0, 99))
def test_the_region_lies_in_the_photo(width: int, height: int, size: int, more: int) -> None:
    preprocessing = Preprocessing(size=size, resize_shorter=size + more)
    left, top, right, bottom = preprocessing.region(width, height)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    side = min(width, height) * size / (size + more)
    assert (right - left, bottom - top) == pytest.approx((side, side))
    assert (left + right, top + bottom) == pytest.approx((width, height))


@pytest.mark.parametrize("preprocessing", [CROP, SQUASH, Preprocessing(interpolation="bilinear")])
@pytest.mark.parametrize("size", [(800, 500), (431, 977), (640, 640)])
@pytest.mark.parametrize("place", [(0.1, 0.1), (0.9, 0.15), (0.5, 0.5), (0.2, 0.85)])
def test_a_mark_is_seen_where_the_region_says(
    preprocessing: Preprocessing, size: tuple[int, int], place: tuple[float, float]
) -> None:
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


@pytest.mark.parametrize("size", [(1, 500), (500, 1), (1, 1), (3, 4000), (2, 2)])
@pytest.mark.parametrize("preprocessing", [CROP, SQUASH, Preprocessing(resize_shorter=224)])
def test_extreme_shapes(size: tuple[int, int], preprocessing: Preprocessing) -> None:
    seen = preprocessing.replace(**PLAIN)(Image.new("RGB", size, (51, 102, 255)))
    assert seen.shape == (3, 224, 224)
    torch.testing.assert_close(seen.mean(dim=(1, 2)), torch.tensor([0.2, 0.4, 1.0]))


# From a file.


def as_jpeg(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=95)
    return buffer.getvalue()


def test_a_large_photo_is_read_as_far_as_the_encoder_needs() -> None:
    large = as_jpeg(photo(4_000, 3_000))
    read = read_photo(large, CROP)
    assert read.size == original_size(read.image) == (4_000, 3_000)
    assert read.image.size == (1_000, 750)  # Decoded at a quarter: at least 512 pixels a side.
    assert read.region == CROP.region(4_000, 3_000)
    torch.testing.assert_close(read.pixels, CROP(read.image), rtol=0, atol=0)
    whole = CROP(load_image(large))
    assert (read.pixels - whole).abs().mean() < 0.01


def test_a_photo_of_usual_size_is_read_whole() -> None:
    usual = as_jpeg(photo(640, 480))
    read = read_photo(usual, CROP)
    torch.testing.assert_close(read.pixels, CROP(load_image(usual)), rtol=0, atol=0)
    assert read.image.size == (640, 480)


def test_an_image_in_memory_is_augmented_before_preprocessing() -> None:
    image = photo(40, 30)
    read = read_photo(image, CROP, augment=lambda each: each.crop((0, 0, 20, 20)))
    torch.testing.assert_close(read.pixels, CROP(image.crop((0, 0, 20, 20))))
    assert read.size == (40, 30)


def test_an_unreadable_photo_is_refused_by_its_name() -> None:
    with pytest.raises(UserError, match=r"^photo 7 is empty$"):
        read_photo(b"", CROP, name="photo 7")


# The fields.


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("resize_shorter", 223),
        ("mean", [0.5, 0.5]),
        ("standard_deviation", [0.5, 0.5, 0.0]),
    ],
)
def test_a_field_without_such_a_value_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"^x: {field}"):
        from_mapping(Preprocessing, {**to_mapping(CROP), field: value}, "x")


def test_the_shorter_side_may_be_anything_where_it_has_no_meaning() -> None:
    assert Preprocessing(resize="squash", resize_shorter=1)(photo(9, 9)).shape == (3, 224, 224)
