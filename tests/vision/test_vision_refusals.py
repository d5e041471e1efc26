"""Photos and weights that are refused, each by one sentence; weights from files and the network."""

import io
import os
import urllib.error
from pathlib import Path
from typing import Any

import pytest
import torch
from photo_samples import encoded, smooth_photo
from PIL import Image, ImageFile
from safetensors.torch import save_file
from samples import publish_weights
from torch import Tensor

from captioner.errors import UserError
from captioner.model_folders import model_folder
from captioner.schema import from_mapping, to_mapping
from captioner.vision.encoder import read_weights
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


SMALL = VGGConfig(name="vgg11_bn", width=0.05)
FULL = VGGConfig(name="vgg11")


class RunsCode:
    """Pickled, it makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.fixture
def state() -> dict[str, Tensor]:
    """The weights of a small encoder, with a classifier behind them, as torchvision has."""
    torch.manual_seed(3)
    encoder = VGGEncoder(SMALL)
    return {**encoder.state_dict(), "classifier.0.weight": torch.ones(2, 2)}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the downloaded weights of `FULL` would lie; there is no network."""

    def urlopen(*arguments: object, **options: object) -> None:
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(torch.hub, "urlopen", urlopen)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder / "vgg11-8a719046.pth"


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_whole_network_in_a_file_is_loaded(
    tmp_path: Path, state: dict[str, Tensor], suffix: str
) -> None:
    path = tmp_path / f"weights{suffix}"
    (save_file if suffix == ".safetensors" else torch.save)(state, path)
    encoder = build_encoder(SMALL, str(path))
    assert not encoder.training
    loaded = encoder.state_dict()
    assert "classifier.0.weight" not in loaded
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.items())


def test_a_model_is_named_as_everywhere(tmp_path: Path, state: dict[str, Tensor]) -> None:
    packaged = read_weights(model_folder() / "model.safetensors")
    split = VGGConfig(name="vgg11", rank=0.5, context=(2, 4))
    loaded = build_encoder(split, "default").state_dict()
    assert all(torch.equal(t, packaged[f"encoder.{name}"]) for name, t in loaded.items())
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    (run / "model" / "config.json").write_text("{}")
    save_file({f"encoder.{n}": t for n, t in state.items()}, run / "model" / "model.safetensors")
    loaded = build_encoder(SMALL, str(run)).state_dict()
    assert torch.equal(loaded["features.0.weight"], state["features.0.weight"])


def test_code_in_a_file_is_not_run(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    path = tmp_path / "weights.pth"
    state: dict[str, Any] = {"features.0.weight": RunsCode(made)}
    torch.save(state, path)
    with pytest.raises(UserError, match=r"weights\.pth cannot be read .*never run"):
        read_weights(path)
    publish_weights(monkeypatch, place.parent, "vgg11", state)
    with pytest.raises(UserError, match="never run"):
        build_encoder(FULL, "imagenet")
    assert not made.exists()
    torch.load(path, weights_only=False)
    assert made.exists()  # it would have been, by a reader that runs code


def test_without_a_network_one_sentence_says_what_to_fetch_and_where_to_put_it(place: Path) -> None:
    with pytest.raises(UserError) as caught:
        build_encoder(FULL, "imagenet")
    sentence = str(caught.value)
    assert "(<urlopen error Name or service not known>)" in sentence
    assert "fetch https://download.pytorch.org/models/vgg11-8a719046.pth" in sentence
    assert f"put it at {place}" in sentence


def test_the_weights_put_in_their_place_are_used(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write_bytes(b"PK\x03\x04half a file")
    with pytest.raises(UserError, match=rf"are damaged \(PytorchStreamReader .*put it at {place}"):
        build_encoder(FULL, "imagenet")
    state = VGGEncoder(FULL).state_dict()
    whole = {**state, "classifier.6.bias": torch.zeros(1000)}
    publish_weights(monkeypatch, place.parent, "vgg11", whole)
    loaded = build_encoder(FULL, "imagenet").state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.items())


def test_a_digest_is_that_of_the_weights(state: dict[str, Tensor]) -> None:
    encoder, second = build_encoder(SMALL, "random"), build_encoder(SMALL, "random")
    assert encoder.digest() != second.digest()
    second.load_state_dict(encoder.state_dict())
    assert second.to(memory_format=torch.channels_last).digest() == encoder.digest()
    found = {encoder.digest()}
    for tensor in encoder.state_dict().values():
        with torch.no_grad():
            tensor.view(-1)[-1] += 1
        found.add(encoder.digest())
    assert len(found) == 1 + len(encoder.state_dict())
