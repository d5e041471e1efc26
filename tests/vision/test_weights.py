"""Weights from files and from the network; what does not fit is in `test_vision_refusals`."""

import os
import urllib.error
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
