"""Networks of timm and torchvision, from config to overlay, with random weights."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from samples import save_photo

import captioner
from captioner.caption.folder import load_model
from captioner.errors import UserError
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.read_recipe import read_recipe, with_encoder_sections
from captioner.runs.run import train_run
from captioner.vision.encoder import Encoder
from captioner.vision.encoders import build_encoder, encoder_config, make_encoder
from captioner.vision.preprocessing import Preprocessing

CONFIG = """
data: {format: shapes, shapes: {train: 3, validation: 2}}
minimum_count: 1
preprocessing: {size: 64}
encoder: {name: NAME, weights: random}
decoder: {embedding_size: 8, hidden_size: 8, attention_size: 8}
training: {epochs: 1, batch_size: 20}
search: {beam: 2, maximum_length: 4, minimum_length: 1}
"""


def recipe_of(folder: Path, name: str, *changes: str) -> CaptioningRecipe:
    path = folder / "config.yaml"
    path.write_text(CONFIG.replace("NAME", name), encoding="utf-8")
    return read_recipe(path, changes)


def network(name: str) -> Encoder:
    return make_encoder(encoder_config({"name": name})).eval()


@pytest.mark.parametrize(
    ("name", "size", "map_shape", "annotation_size"),
    [
        ("timm/test_resnet", 64, (2, 2), 96),
        ("timm/test_convnext", 96, (3, 3), 64),
        ("timm/test_vit", 64, (4, 4), 64),
        ("torchvision/resnet18", 96, (3, 3), 512),
        pytest.param("torchvision/efficientnet_b0", 64, (2, 2), 1280, marks=pytest.mark.slow),
        pytest.param("torchvision/convnext_tiny", 64, (2, 2), 768, marks=pytest.mark.slow),
        pytest.param("torchvision/vit_b_16", 224, (14, 14), 768, marks=pytest.mark.slow),
    ],
)
def test_a_network_is_trained_saved_loaded_and_drawn(
    tmp_path: Path, name: str, size: int, map_shape: tuple[int, int], annotation_size: int
) -> None:
    changes = [f"preprocessing.size={size}", "encoder.train=true", "encoder.train_from=8"]
    recipe = recipe_of(tmp_path, name, *changes)
    assert recipe.decoder.memory_size == annotation_size
    torch.manual_seed(recipe.training.seed)
    before = build_encoder(recipe.encoder.config, "random").state_dict()
    folder = train_run(recipe, tmp_path / "run")
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert saved["encoder"] == {"name": name}
    after = load_model(folder).encoder.named_parameters()
    changed = [not torch.equal(before[name].half().float(), each) for name, each in after]
    assert changed[-1]
    assert not any(changed[: len(changed) // 2])
    model = captioner.load(folder)
    assert model.map_shape == map_shape
    caption = model.caption(save_photo(tmp_path / "photo.png"), beam=2)
    assert caption.attention.shape == (len(caption.words), *map_shape)
    caption.overlay(tmp_path / "overlay.png")
    assert Image.open(tmp_path / "overlay.png").width > 0


def test_preprocessing_and_sizes_come_from_the_library() -> None:
    name = "timm/vit_base_patch16_clip_224.openai"
    clip: dict[str, Any] = {"encoder": {"name": name}, "decoder": {"memory_size": 768}}
    filled = with_encoder_sections(clip)["preprocessing"]
    expected = Preprocessing(
        resize_shorter=248,
        mean=(0.48145466, 0.4578275, 0.40821073),
        standard_deviation=(0.26862954, 0.26130258, 0.27577711),
    )
    assert Preprocessing.model_validate(filled) == expected
    own = {"size": 112, "interpolation": "bilinear"}
    filled = with_encoder_sections({**clip, "preprocessing": own})["preprocessing"]
    assert (filled["resize_shorter"], filled["interpolation"]) == (124, "bilinear")
    small = {"size": 112}
    filled = with_encoder_sections({"preprocessing": small})  # VGG-19
    assert filled["preprocessing"] == {**small, "resize_shorter": 128}
    for given in (small | {"resize": "squash"}, small | {"resize_shorter": 120}):
        assert with_encoder_sections({"preprocessing": given})["preprocessing"] == given
    filled = with_encoder_sections({"encoder": {"name": "torchvision/resnet18"}})
    assert filled["decoder"] == {"memory_size": 512}
    expected = Preprocessing(interpolation="bilinear")
    assert Preprocessing.model_validate(filled["preprocessing"]) == expected


@pytest.mark.parametrize(
    ("name", "size", "map_shape"),
    [
        ("timm/test_resnet", (100, 224), (4, 7)),
        ("timm/test_vit", (48, 80), (3, 5)),
        ("torchvision/resnet18", (64, 96), (2, 3)),
        ("timm/test_vit", (224, 224), (14, 14)),
    ],
)
def test_maps_of_any_shape(name: str, size: tuple[int, int], map_shape: tuple[int, int]) -> None:
    encoder = network(name)
    assert encoder.map_shape(*size) == map_shape
    with torch.no_grad():
        annotations = encoder(torch.randn(2, 3, *size))
    assert annotations.shape == (2, map_shape[0] * map_shape[1], encoder.annotation_size)


def test_the_class_token_is_left_out_and_cells_are_row_by_row() -> None:
    torch.manual_seed(0)
    encoder: Any = network("timm/test_vit")
    photo = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        tokens = encoder.network.forward_features(photo)  # the class token first
        torch.testing.assert_close(encoder(photo), tokens[:, 1:])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("timm/convnext_bse", "timm has no network 'convnext_bse'; did you mean 'timm/convnext_b"),
        ("torchvision/resnet100", "did you mean 'torchvision/resnet101' or "),
        ("torchvision/googlenet", "torchvision has no network 'googlenet'"),
        ("torchvision/squeezenet1_0", "has no spatial feature map before a pooling"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        network(name)


def test_a_network_that_does_not_fit_or_is_not_installed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import timm

    with pytest.raises(UserError, match="timm/test_vit cannot read images of 50 x 50 pixels"):
        network("timm/test_vit").map_shape(50, 50)
    with pytest.raises(UserError, match="memory_size 7 is not 64, that of the encoder"):
        train_run(recipe_of(tmp_path, "timm/test_vit", "decoder.memory_size=7"), tmp_path / "run")
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: torch.nn.Linear(3, 3))
    with pytest.raises(UserError, match="timm/test_vit has no spatial feature map"):
        network("timm/test_vit")
    monkeypatch.setitem(sys.modules, "timm", None)
    sentence = r'timm/test_resnet needs the package timm: pip install "captioner\[timm\]"'
    with pytest.raises(UserError, match=sentence):
        network("timm/test_resnet")


def test_published_weights_are_taken_and_their_absence_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import timm

    config = encoder_config({"name": "timm/test_vit"})
    published = timm.create_model("test_vit").state_dict()
    loader = "timm.models._builder.load_state_dict_from_hf"
    monkeypatch.setattr(loader, lambda *_, **__: dict(published))
    encoder = build_encoder(config, "pretrained")
    own = encoder.state_dict()
    names = [name for name in published if "head" not in name]
    assert all(torch.equal(own[f"network.{name}"], published[name]) for name in names)
    save_file(published, tmp_path / "file.safetensors")
    assert build_encoder(config, str(tmp_path / "file.safetensors")).digest() == encoder.digest()

    def fail(*_: object, **__: object) -> None:
        raise OSError("Name or service not known.\nRetry")

    monkeypatch.setattr(loader, fail)
    with pytest.raises(UserError, match=r"be downloaded \(Name or service not known\); [^\n]*$"):
        build_encoder(config, "pretrained")
