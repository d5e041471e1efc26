"""`captioner train --encoder` and `captioner features` as typed."""

from pathlib import Path

import pytest
from samples import Output, Patch

from captioner.cli.main import main
from captioner.runs import run as train_run_module
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.read_recipe import read_recipe

ROOT = Path(__file__).resolve().parents[2]


def test_another_encoder_leaves_the_rest_of_a_config_as_it_is(monkeypatch: Patch) -> None:
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
