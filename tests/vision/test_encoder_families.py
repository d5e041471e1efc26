"""Encoders of any family, from config to overlay, and their weights, from files and the network."""

import os
import re
import sys
import urllib.error
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from refusals import refuses
from safetensors.torch import save_file
from samples import Patch, make_captioner, save_photo
from timm.data import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD
from torch import Tensor

import captioner
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.read_recipe import read_recipe, with_encoder_sections
from captioner.runs.run import train_run
from captioner.vision.encoder import Encoder, VGGEncoder
from captioner.vision.encoder_config import EncoderConfig, VGGConfig
from captioner.vision.encoder_families import ENCODERS, build_encoder, make_encoder
from captioner.vision.preprocessing import Preprocessing

CONFIG = """
data: {format: shapes, shapes: {train: 3, validation: 2}}
minimum_count: 1
preprocessing: {size: 64}
encoder: ENCODER
decoder: {embedding_size: 8, hidden_size: 8, attention_size: 8}
training: {epochs: 1, batch_size: 20}
search: {beam: 2, maximum_length: 4, minimum_length: 1}
"""


@pytest.fixture(autouse=True)
def _patches(monkeypatch: Patch) -> None:
    """The family that docs/extending.md adds."""
    page = Path(__file__).parents[2] / "docs" / "extending.md"
    code = page.read_text(encoding="utf-8").partition("## Adding an encoder")[2].split("```")[1]
    names: dict[str, Any] = {}
    exec(code.removeprefix("python"), names)
    monkeypatch.setitem(EncoderConfig.kinds, "patches", names["PatchConfig"])
    monkeypatch.setitem(ENCODERS, names["PatchConfig"], names["PatchEncoder"])


def recipe_of(folder: Path, encoder: str, *changes: str) -> CaptioningRecipe:
    path = folder / "config.yaml"
    path.write_text(CONFIG.replace("ENCODER", encoder), encoding="utf-8")
    return read_recipe(path, changes)


def network(name: str) -> Encoder:
    return make_encoder(EncoderConfig.of_kind({"name": name})).eval()


@pytest.mark.parametrize(
    ("name", "size", "map_shape", "depth"),
    [
        ("patches", 64, (2, 2), 256),
        ("timm/test_resnet", 64, (2, 2), 96),
        ("timm/test_convnext", 96, (3, 3), 64),
        ("timm/test_vit", 64, (4, 4), 64),
        ("torchvision/resnet18", 96, (3, 3), 512),
        pytest.param("torchvision/efficientnet_b0", 64, (2, 2), 1280, marks=pytest.mark.slow),
        pytest.param("torchvision/convnext_tiny", 64, (2, 2), 768, marks=pytest.mark.slow),
        pytest.param("torchvision/vit_b_16", 224, (14, 14), 768, marks=pytest.mark.slow),
    ],
)
def test_an_encoder_is_trained_saved_and_drawn(tmp_path, name, size, map_shape, depth) -> None:
    train_from = 1 if name == "patches" else 8
    changes = [f"preprocessing.size={size}", f"decoder.memory_size={depth}"]
    changes += ["encoder.train=true", f"encoder.train_from={train_from}"]
    recipe = recipe_of(tmp_path, f"{{name: {name}, weights: random}}", *changes)
    torch.manual_seed(recipe.training.seed)
    before = build_encoder(recipe.encoder.config, "random").state_dict()
    model = captioner.load(train_run(recipe, tmp_path / "run"))
    assert model.backend.encoder.config.name == name
    after = model.backend.encoder.named_parameters()
    changed = [not torch.equal(before[name].half().float(), each) for name, each in after]
    assert changed[-1]
    assert not any(changed[: len(changed) // 2]) or train_from == 1
    caption = model.caption(save_photo(tmp_path / "photo.png"), beam=2)
    assert caption.attention.shape == (len(caption.words), *map_shape)
    caption.overlay(tmp_path / "overlay.png")


def test_preprocessing_and_sizes_come_from_the_library() -> None:
    clip: dict[str, Any] = {"encoder": {"name": "timm/vit_base_patch16_clip_224.openai"}}
    own = {"size": 112, "interpolation": "bilinear"}
    filled = with_encoder_sections({**clip, "preprocessing": own})
    assert filled["decoder"] == {"memory_size": 768}
    preprocessing = filled["preprocessing"]
    assert (preprocessing["resize_shorter"], preprocessing["interpolation"]) == (124, "bilinear")
    mean, deviation = OPENAI_CLIP_MEAN, OPENAI_CLIP_STD
    for given, expected in (
        (clip, {"resize_shorter": 248, "mean": mean, "standard_deviation": deviation}),
        ({"preprocessing": {"size": 112}}, {"size": 112, "resize_shorter": 128}),  # VGG-19
        ({"encoder": {"name": "torchvision/resnet18"}}, {"interpolation": "bilinear"}),
    ):
        filled = with_encoder_sections(given)
        assert Preprocessing.model_validate(filled["preprocessing"]) == Preprocessing(**expected)


MAPS = [("timm/test_resnet", (100, 224), (4, 7)), ("timm/test_vit", (48, 80), (3, 5))]
MAPS += [("torchvision/resnet18", (64, 96), (2, 3))]


@pytest.mark.parametrize(("name", "size", "map_shape"), MAPS)
def test_maps_of_any_shape(name: str, size: tuple[int, int], map_shape: tuple[int, int]) -> None:
    encoder: Any = network(name)
    assert encoder.map_shape(*size) == map_shape
    photos = torch.randn(2, 3, *size)
    annotations = encoder(photos).detach()
    assert annotations.shape == (2, map_shape[0] * map_shape[1], encoder.annotation_size)
    if name == "timm/test_vit":  # Row by row, behind the class token.
        tokens = encoder.network.forward_features(photos)
        torch.testing.assert_close(annotations, tokens[:, 1:].detach())


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        ("name: patchs", "encoder.name 'patchs' is not one of .*; did you mean 'patches'"),
        ("name: patches, width: 0.5", "'encoder.width' is for another kind of encoder"),
        ("name: patches, train: true, train_from: 2", "encoder.train_from 2 is not at most 1"),
        ("name: timm/test_vit, weights: random", "test_vit cannot read images of 63 x 63 pixels"),
        ("name: timm/convnext_bse", "timm has no network 'convnext_bse'; did you mean 'timm/co"),
        ("name: torchvision/googlenet", "torchvision has no network 'googlenet'"),
        ("name: torchvision/squeezenet1_0", "has no spatial feature map before a pooling"),
    ],
)
def test_an_unusable_encoder_is_refused(tmp_path: Path, encoder: str, message: str) -> None:
    recipe = [tmp_path, f"{{{encoder}}}", "preprocessing.size=63"]
    refuses(message, lambda: train_run(recipe_of(*recipe), tmp_path / "run"))


def test_a_network_that_does_not_fit_or_is_not_installed_is_refused(monkeypatch: Patch) -> None:
    import timm

    backend = make_captioner().backend
    refuses("memory_size 512 is not 64", replace, backend, encoder=network("timm/test_vit"))
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: torch.nn.Linear(3, 3))
    refuses("timm/test_vit has no spatial feature map", network, "timm/test_vit")
    monkeypatch.setitem(sys.modules, "timm", None)
    sentence = r'timm/test_resnet needs the package timm: pip install "captioner\[timm\]"'
    refuses(sentence, network, "timm/test_resnet")


class RunsCode:
    """Pickled, it makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("made",)


SMALL, FULL = VGGConfig(name="vgg11_bn", width=0.05), VGGConfig(name="vgg11")
STATE = VGGEncoder(SMALL).state_dict()
MEAN = "features.1.running_mean"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("absent.pth", None, "cannot be read ("),
        *((f"w{suffix}", b"<html>", "cannot be read (") for suffix in (".pth", ".safetensors")),
        ("w.pth", b"PK\x03\x04half a file", "cannot be read ("),
        ("w.pth", [1, 2], "does not hold named tensors"),
        ("w.pth", {"features.0.weight": [1.0]}, "does not hold named tensors"),
        ("w.pth", {"features.0.weight": RunsCode()}, "never run"),
        ("w.safetensors", {n: t for n, t in STATE.items() if n != MEAN}, f"tensor {MEAN!r} is mis"),
        ("w.safetensors", STATE | {"context.0.weight": torch.zeros(1)}, "'context.0.weight' does"),
    ],
)
def test_wrong_weights_are_refused(tmp_path, name, content, message, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    if isinstance(content, bytes):
        Path(name).write_bytes(content)
    elif content is not None:
        (save_file if name.endswith(".safetensors") else torch.save)(content, Path(name))
    refuses(rf"{name}.*{re.escape(message)}", build_encoder, SMALL, name)
    refuses("did you mean 'default'", build_encoder, SMALL, "defualt")
    assert not Path("made").exists()


def assert_loaded(config: EncoderConfig, weights: str, expected: dict[str, Tensor]) -> None:
    loaded = build_encoder(config, weights).state_dict()
    assert [n for n, tensor in loaded.items() if not torch.equal(tensor, expected[n])] == []


def test_weights_of_files_and_models_are_loaded(tmp_path: Path) -> None:
    whole = {**STATE, "classifier.0.weight": torch.ones(2, 2)}  # As torchvision has them.
    torch.save(whole, tmp_path / "w.pth")
    save_file(whole, tmp_path / "w.safetensors")
    model = tmp_path / "run" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    save_file({f"encoder.{name}": t for name, t in whole.items()}, model / "model.safetensors")
    for name in ("w.pth", "w.safetensors", "run"):
        assert_loaded(SMALL, str(tmp_path / name), STATE)
    packaged = captioner.load("default", engine="torch").backend.encoder
    assert_loaded(packaged.config, "default", packaged.state_dict())


def test_the_weights_put_in_their_place_are_used(tmp_path: Path, monkeypatch: Patch) -> None:
    failing = Mock(side_effect=urllib.error.URLError("Name or service not known"))
    monkeypatch.setattr(torch.hub, "urlopen", failing)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    place = tmp_path / "home" / "hub" / "checkpoints" / "vgg11-8a719046.pth"
    place.parent.mkdir(parents=True)
    fetch = rf"fetch https://.*/{place.name} on a machine with a network and put it at {place}, or"
    refuses(rf"Name or service not known>\); {fetch} give a file$", build_encoder, FULL, "imagenet")
    place.write_bytes(b"PK\x03\x04half a file")
    refuses(rf"are damaged \(Pytorch.* .*put it at {place}", build_encoder, FULL, "imagenet")
    state = VGGEncoder(FULL).state_dict()
    torch.save({**state, "classifier.6.bias": torch.zeros(1000)}, place)
    assert_loaded(FULL, "imagenet", state)


def test_weights_of_timm_are_taken_or_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    import timm

    config = EncoderConfig.of_kind({"name": "timm/test_vit"})
    published = timm.create_model("test_vit").state_dict()
    loader = "timm.models._builder.load_state_dict_from_hf"
    monkeypatch.setattr(loader, lambda *_, **__: dict(published))
    expected = {f"network.{name}": tensor for name, tensor in published.items()}
    save_file(published, tmp_path / "file.safetensors")
    for weights in ("pretrained", str(tmp_path / "file.safetensors")):
        assert_loaded(config, weights, expected)
    monkeypatch.setattr(loader, Mock(side_effect=OSError("Name or service not known.\nRetry")))
    refuses(r"be downloaded \(Name or service not known\); ", build_encoder, config, "pretrained")


def test_a_digest_is_that_of_the_weights() -> None:
    encoder, second = build_encoder(SMALL, "random"), build_encoder(SMALL, "random")
    second.load_state_dict(encoder.state_dict())
    assert second.to(memory_format=torch.channels_last).digest() == encoder.digest()
    found = {encoder.digest()}
    for tensor in encoder.state_dict().values():
        with torch.no_grad():
            tensor.view(-1)[-1] += 1
        found.add(encoder.digest())
    assert len(found) == 1 + len(encoder.state_dict())
