"""Weights from files and from the network: what fits is loaded, what does not is named."""

from __future__ import annotations

import http.client
import io
import os
import urllib.error
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from samples import publish_weights
from torch import Tensor

from captioner.errors import UserError
from captioner.model_folders import model_folder
from captioner.vision.encoder import read_weights
from captioner.vision.encoders import build_encoder
from captioner.vision.vgg import VGGConfig, VGGEncoder

SMALL = VGGConfig(name="vgg11_bn", width=0.05)
FULL_BN = VGGConfig(name="vgg11_bn")
FULL = VGGConfig(name="vgg11")


class Answer(io.BytesIO):
    """What a server answers."""

    def info(self) -> Message:
        headers = Message()
        headers["Content-Length"] = str(len(self.getvalue()))
        return headers


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
    """Where the downloaded weights of `FULL` would lie."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder / "vgg11-8a719046.pth"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Sets what every request gets: bytes, or an error."""

    def answers(content: Any) -> None:
        def urlopen(*arguments: object, **options: object) -> Answer:
            if isinstance(content, BaseException):
                raise content
            return Answer(content)

        monkeypatch.setattr(torch.hub, "urlopen", urlopen)

    return answers


# From a file.


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_a_whole_network_in_a_file_is_loaded(
    tmp_path: Path, state: dict[str, Tensor], suffix: str
) -> None:
    path = tmp_path / f"weights{suffix}"
    if suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    encoder = build_encoder(SMALL, str(path))
    assert not encoder.training
    loaded = encoder.state_dict()
    assert "classifier.0.weight" not in loaded
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.items())


def test_a_model_is_named_as_everywhere(tmp_path: Path, state: dict[str, Tensor]) -> None:
    packaged = read_weights(model_folder() / "model.safetensors")
    loaded = build_encoder(FULL_BN.replace(context=(2, 4)), "default").state_dict()
    assert all(torch.equal(t, packaged[f"encoder.{name}"]) for name, t in loaded.items())
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    (run / "model" / "config.json").write_text("{}")
    save_file({f"encoder.{n}": t for n, t in state.items()}, run / "model" / "model.safetensors")
    loaded = build_encoder(SMALL, str(run)).state_dict()
    assert torch.equal(loaded["features.0.weight"], state["features.0.weight"])
    with pytest.raises(UserError, match=r"'defualt' is neither .*did you mean 'default'"):
        build_encoder(SMALL, "defualt")


def refused(path: Path, config: VGGConfig = SMALL) -> str:
    with pytest.raises(UserError) as error:
        build_encoder(config, str(path))
    sentence = str(error.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    return sentence


def test_tensors_that_do_not_fit_are_named(tmp_path: Path, state: dict[str, Tensor]) -> None:
    path = tmp_path / "weights.safetensors"
    name = "features.1.running_mean"
    save_file({key: tensor for key, tensor in state.items() if key != name}, path)
    assert f"does not fit vgg11_bn of width 0.05: tensor {name!r} is missing" in refused(path)
    save_file(state, path)
    assert "vgg11 of width 0.05: tensor 'features.1.bias' does not belong" in refused(
        path, VGGConfig(name="vgg11", width=0.05)
    )


def test_files_that_hold_no_tensors_are_refused(tmp_path: Path, state: dict[str, Tensor]) -> None:
    assert "does not exist" in refused(tmp_path / "absent.pth")
    assert "does not exist" in refused(tmp_path)
    (tmp_path / "weights.h5").write_bytes(b"x")
    assert "is neither .safetensors nor .pth" in refused(tmp_path / "weights.h5")
    for value in ([1, 2], {"features.0.weight": [1.0]}, {0: torch.zeros(1)}, {"state_dict": state}):
        torch.save(value, tmp_path / "other.pth")
        assert "does not hold named tensors" in refused(tmp_path / "other.pth")


@pytest.mark.parametrize("content", [b"", b"<html>", b"PK\x03\x04half a file"])
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_damaged_files_are_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(content)
    assert "cannot be read" in refused(path)


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    made = tmp_path / "made"
    path = tmp_path / "weights.pth"
    torch.save({"features.0.weight": RunsCode(made)}, path)
    with pytest.raises(UserError, match=r"weights\.pth cannot be read .*never run"):
        read_weights(path)
    assert not made.exists()
    torch.load(path, weights_only=False)
    assert made.exists()  # it would have been, by a reader that runs code


# ImageNet's, from the network.


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (urllib.error.URLError("Name or service not known"), "Name or service not known"),
        (TimeoutError("timed out"), "timed out"),
        (http.client.IncompleteRead(b""), "IncompleteRead(0 bytes read)"),
    ],
)
def test_without_a_network_one_sentence_says_what_to_fetch_and_where_to_put_it(
    place: Path, server: Callable[[Any], None], error: Exception, reason: str
) -> None:
    server(error)
    with pytest.raises(UserError) as caught:
        build_encoder(FULL, "imagenet")
    sentence = str(caught.value)
    assert "https://download.pytorch.org/models/vgg11-8a719046.pth" in sentence
    assert f"put it at {place}" in sentence
    assert f"({reason})" in sentence
    assert "\n" not in sentence
    assert not list(place.parent.iterdir())


def test_a_download_with_other_content_is_refused(
    place: Path, server: Callable[[Any], None]
) -> None:
    server(b"<html>Please sign in</html>")
    with pytest.raises(
        UserError, match=r"weights of vgg11 are damaged \(invalid hash .* try again"
    ):
        build_encoder(FULL, "imagenet")
    assert not place.exists()


def test_a_damaged_file_from_before_is_to_be_deleted(
    place: Path, server: Callable[[Any], None]
) -> None:
    server(AssertionError("no download is due"))
    place.write_bytes(b"PK\x03\x04half a file")
    with pytest.raises(UserError) as error:
        build_encoder(FULL, "imagenet")
    assert str(error.value) == (
        "the ImageNet weights of vgg11 are damaged (their SHA-256 does not begin with 8a719046); "
        f"delete {place} and try again"
    )


def test_code_in_a_downloaded_file_is_not_run(
    place: Path, server: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server(AssertionError("no download is due"))
    state: dict[str, Any] = {"features.0.weight": RunsCode(tmp_path / "made")}
    publish_weights(monkeypatch, place.parent, "vgg11", state)
    with pytest.raises(UserError, match="never run"):
        build_encoder(FULL, "imagenet")
    assert not (tmp_path / "made").exists()


def test_the_weights_put_in_their_place_are_used(
    place: Path, server: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    server(AssertionError("no download is due"))
    state = VGGEncoder(FULL).state_dict()
    whole = {**state, "classifier.6.bias": torch.zeros(1000)}
    publish_weights(monkeypatch, place.parent, "vgg11", whole)
    loaded = build_encoder(FULL, "imagenet").state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in loaded.items())


def test_a_narrower_network_has_no_imagenet_weights() -> None:
    with pytest.raises(UserError, match=r"width 1\.0 only, not for vgg11_bn of width 0.05"):
        build_encoder(SMALL, "imagenet")


# Fingerprints.


def test_the_same_weights_have_the_same_digest(state: dict[str, Tensor]) -> None:
    first, second = build_encoder(SMALL, "random"), build_encoder(SMALL, "random")
    assert first.digest() != second.digest()
    second.load_state_dict(first.state_dict())
    assert first.digest() == second.digest()
    assert second.to(memory_format=torch.channels_last).digest() == first.digest()


def test_every_weight_counts() -> None:
    encoder = build_encoder(SMALL, "random")
    found = {encoder.digest()}
    for tensor in encoder.state_dict().values():
        with torch.no_grad():
            tensor.view(-1)[-1] += 1
        found.add(encoder.digest())
    assert len(found) == 1 + len(encoder.state_dict())
