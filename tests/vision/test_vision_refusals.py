"""Photos and weights that are refused, each by one sentence."""

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from photo_samples import encoded, smooth_photo
from PIL import Image, ImageFile
from safetensors.torch import save_file

from captioner.errors import UserError
from captioner.schema import from_mapping, to_mapping
from captioner.vision.encoders import build_encoder
from captioner.vision.images import load_image
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import VGGConfig, VGGEncoder


def refusal(source: Any, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        load_image(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.__cause__ is None
    return message


def named_file() -> Any:
    file = io.BytesIO(b"words")
    file.name = "named.jpg"  # type: ignore[attr-defined]
    return file


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.jpg", "missing.jpg does not exist"),
        (".", ". is not a file"),
        ("", "'' does not exist"),
        ("a\0b.jpg", "a\0b.jpg does not exist"),
        ("https://x.org/a.jpg", "https://x.org/a.jpg is an address; photos are not fetched, only"),
        (io.StringIO("words"), "cannot read the image: a bytes-like object is required"),
        (None, "the image is of the type NoneType, not a path, bytes, "),
        (b"", "the image is not an image that can be read (JPEG, PNG, "),
        # Pillow would start another program for an EPS file.
        (encoded(smooth_photo(), "EPS"), "the image is not an image that can be read"),
        (encoded(smooth_photo(), "TGA"), "the image is not an image that can be read"),
        (named_file(), "named.jpg is not an image"),
        (Image.new("RGB", (0, 5)), "the image has no pixels"),
    ],
)
def test_what_is_no_photo_is_refused_by_name(source: Any, message: str) -> None:
    assert refusal(source).startswith(message)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM"])
def test_cut_off_in_the_middle(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    content = encoded(smooth_photo(200, 200), kind)
    path.write_bytes(content[: len(content) * 3 // 4])
    assert refusal(path, sufficient_side=50).startswith(f"cannot read {path}: ")


def test_a_png_file_that_ends_in_zeros_is_not_black() -> None:
    """As an unfinished download leaves it whose room was taken at the start."""
    content = encoded(smooth_photo(200, 200), "PNG")
    damaged = content[: len(content) // 2].ljust(len(content), b"\0")
    assert refusal(damaged).startswith("cannot read the image: ")


def test_too_many_pixels_are_refused_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(smooth_photo(), "PNG")
    assert load_image(content, maximum_pixels=24 * 16).size == (24, 16)
    message = "the image is too large: 24 x 16 is 384 pixels, the limit is 383"
    assert refusal(smooth_photo(), maximum_pixels=383) == message
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda file: pytest.fail("decoded"))
    assert refusal(content, maximum_pixels=383, sufficient_side=4) == message
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Pillow refuses twice as many.
    assert refusal(content).startswith("the image is too large: Image size (384 pixels) exceeds")


# Weights.


SMALL = VGGConfig(name="vgg11_bn", width=0.05)
STATE = VGGEncoder(SMALL).state_dict()
MEAN = "features.1.running_mean"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.pth", None, "absent.pth does not exist"),
        ("defualt", None, "did you mean 'default'"),
        *((f"w{suffix}", b"<html>", "cannot be read (") for suffix in (".pth", ".safetensors")),
        ("w.pth", b"PK\x03\x04half a file", "cannot be read ("),
        ("w.pth", [1, 2], "does not hold named tensors"),
        ("w.pth", {"features.0.weight": [1.0]}, "does not hold named tensors"),
        ("w.safetensors", {n: t for n, t in STATE.items() if n != MEAN}, f"tensor {MEAN!r} is mis"),
        ("w.safetensors", STATE | {"context.0.weight": torch.zeros(1)}, "'context.0.weight' does"),
        ("imagenet", None, "width 1.0 and rank 1.0 only, not for vgg11_bn of width 0.05"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    tmp_path: Path, name: str, content: Any, message: str
) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        (save_file if path.suffix == ".safetensors" else torch.save)(content, path)
    with pytest.raises(UserError) as error:
        build_encoder(SMALL, str(path) if path.suffix else name)
    assert message in str(error.value)
    assert str(path) in str(error.value) or not path.suffix
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("resize_shorter", 223),
        ("mean", [0.5, 0.5]),
        ("standard_deviation", [0.5, 0.5, 0.0]),
    ],
)
def test_a_preprocessing_of_other_values_is_refused(field: str, value: Any) -> None:
    with pytest.raises(UserError, match=f"^x: {field}"):
        from_mapping(Preprocessing, {**to_mapping(Preprocessing()), field: value}, "x")
