"""`captioner train` as typed, on the roads from what users download."""

from pathlib import Path

import pytest
import torch
from samples import Output, Patch, publish_weights, save_photo

import captioner
from captioner.cli.main import main
from captioner.runs import run as train_run_module
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.read_recipe import read_recipe
from captioner.vision.vgg import VGGConfig, VGGEncoder

ROOT = Path(__file__).resolve().parents[2]

SMALL = (
    "decoder={embedding_size: 8, hidden_size: 8, attention_size: 8}",
    "training={epochs: 1, batch_size: 4}",
    "preprocessing.size=64",
    "preprocessing.resize_shorter=64",
    "minimum_count=1",
    "search.beam=2",
)


@pytest.fixture
def flickr8k(tmp_path: Path) -> Path:
    """A folder whose data/ holds Flickr8k as its flickr8k unpack, but few of its photos."""
    names = [f"{number}_photo.jpg" for number in range(6)]
    for number, name in enumerate(names):
        save_photo(tmp_path / "data/Flicker8k_Dataset" / name, seed=number)
    # The original names a photo in its captions that it does not have.
    tokens = [f"{name}#{n}\tA photo of a colour .\n" for name in names for n in range(5)]
    tokens.append("2258277193_586949ec62.jpg.1#0\tpeople waiting .\n")
    text = tmp_path / "data/Flickr8k_text"
    text.mkdir()
    (text / "Flickr8k.token.txt").write_text("".join(tokens))
    (text / "Flickr_8k.trainImages.txt").write_text("\n".join(names[:4]))
    (text / "Flickr_8k.devImages.txt").write_text("\n".join(names[4:]))
    return tmp_path


@pytest.mark.slow
def test_from_flickr8k_to_a_model(flickr8k: Path, monkeypatch: Patch, capsys: Output) -> None:
    """With a VGG-19, whose ImageNet weights lie where torchvision keeps them.

    They are random, and without the classifier, which the real file has and nobody here reads.
    """
    monkeypatch.setenv("TORCH_HOME", str(flickr8k / "home"))
    torch.manual_seed(0)
    eyes = VGGEncoder(VGGConfig(name="vgg19"))
    publish_weights(monkeypatch, flickr8k / "home/hub/checkpoints", "vgg19", eyes.state_dict())
    monkeypatch.chdir(flickr8k)
    config = str(ROOT / "configs/flickr8k_soft.yaml")
    changes = [part for change in SMALL for part in ("--set", change)]
    arguments = ["train", config, "--encoder", "vgg19", "--out", "run", "--device", "cpu", *changes]
    assert main(arguments) == 0
    assert "training: 4 photos, 20 captions" in capsys.readouterr().out
    model = captioner.load(flickr8k / "run/model", precision="float32")
    assert model.encoder.config == VGGConfig(name="vgg19")
    assert model.encoder.digest() == eyes.digest()
    (caption,) = model.caption([flickr8k / "data/Flicker8k_Dataset/5_photo.jpg"])
    assert caption.attention.shape == (len(caption.words), 4, 4)
    assert main([*arguments, "--resume"]) == 0


def test_another_encoder_leaves_the_rest_of_a_config_as_it_is(
    flickr8k: Path, monkeypatch: Patch
) -> None:
    given: list[CaptioningRecipe] = []
    monkeypatch.setattr(train_run_module, "train_run", lambda recipe, *_: given.append(recipe))
    for name in ("shapes_soft", "flickr8k_soft"):
        config = str(ROOT / f"configs/{name}.yaml")
        assert main(["train", config, "--encoder", "vgg16", "--device", "cpu"]) == 0
        plain = read_recipe(config)
        expected = plain.encoder.replace(name="vgg16", width=1.0, weights="pretrained")
        assert given[-1].encoder == expected
        assert given[-1].features.folder is None  # The config's is of another encoder.
        assert given[-1].replace(encoder=plain.encoder, features=plain.features) == plain


@pytest.mark.parametrize("folder", ["stored", "2024"])
def test_features_go_where_the_config_or_the_option_says(
    folder: str, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(
        "data: {format: shapes, shapes: {train: 3, validation: 2, pictures: {image_size: 64}}}\n"
        "preprocessing: {size: 64, resize: squash}\n"
        "encoder: {name: vgg11_bn, width: 0.05, weights: random}\n"
    )
    said = ["--out", folder] if folder == "2024" else ["--set", f"features.folder={folder}"]
    assert main(["features", "config.yaml", "--device", "cpu", *said]) == 0
    assert (tmp_path / folder / "train").is_dir()
    assert f"train: 3 images in {folder}" in capsys.readouterr().out
