"""Feature stores of a recipe: the same rows by one process or several."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from run_samples import Config, merged, recipe_of, write_config
from samples import Output, Patch, save_photo
from torch import Tensor

import captioner
from captioner.cli.main import main
from captioner.errors import UserError
from captioner.runs import features
from captioner.runs.features import encoder_of, extract_features
from captioner.runs.photos import PixelRows, StoredRows, read_training
from captioner.training.distributed import Processes
from captioner.vision.feature_store import FeatureStore
from captioner.vision.images import load_image


@pytest.fixture
def config(config: Config, tmp_path: Path) -> Config:
    """With photos to train on mirrored as well."""
    features = {"folder": str(tmp_path / "store"), "mirror": True, "batch_size": 2}
    return {**config, "features": features}


def filled(config: Config, folder: Path) -> dict[str, FeatureStore]:
    return extract_features(recipe_of(config, features={"folder": str(folder)}), Processes())


def test_photos_without_captions_are_a_store(folder: Path, capsys: Output) -> None:
    photos = folder / "photos"
    for number, name in enumerate(("b.png", "a.png", "broken.png")):
        save_photo(photos / name, number)
    (photos / "broken.png").write_bytes(b"no photo")
    command = ["features", "photos", "--set", "start_from=tiny-model"]
    assert main([*command, "--set", "data.on_problem=skip"]) == 2
    assert "2 images in features/photos\n" in capsys.readouterr().out
    names = json.loads(Path("features/photos/record.json").read_text())["images"][:2]
    assert names == [str(Path("photos", name)) for name in ("a.png", "b.png")]
    model = captioner.load("tiny-model", engine="torch")
    expected = model.annotations([load_image(name) for name in names])
    *stored, unreadable = np.load("features/photos/rows.npy")  # The broken one is the last.
    assert np.shape(stored) == tuple(expected.shape)
    assert np.isnan(unreadable).all()
    np.testing.assert_allclose(stored, expected, rtol=2e-3, atol=2e-3)


def test_stored_rows_are_those_read_in_the_step_in_its_precision(config: Config) -> None:
    """Nearly the same in bfloat16, whose store is not taken for one of float32."""
    recipe = recipe_of(config, features={"precision": "bfloat16"})
    torch.manual_seed(0)  # As the command seeds it.
    encoder = encoder_of(recipe.encoder).eval()
    rows = PixelRows(read_training(recipe.data)[0], recipe.preprocessing, encoder)
    pixels, photos = rows.read(torch.tensor([4, 0, 3, 0]))
    assert photos.tolist() == [2, 0, 1, 0]  # A photo is read once.
    wide, narrow = rows.encode(pixels), replace(rows, precision="bfloat16").encode(pixels)
    torch.testing.assert_close(wide, encoder(recipe.preprocessing.normalise(pixels)).detach())
    assert 0 < float((wide - narrow).norm() / wide.norm()) < 0.03
    with pytest.raises(UserError, match="no folder for features: give --out"):
        extract_features(recipe_of(config, features={"folder": None}), Processes())
    stored = extract_features(recipe, Processes())["train"].read([0, 3, 4])
    torch.testing.assert_close(stored, narrow, rtol=0.02, atol=0.02)
    with pytest.raises(UserError, match=r"differs from this run in encoder\.precision;"):
        extract_features(recipe_of(config), Processes())


def test_a_finished_store_stays_and_rows_are_mirrored(config: Config, capsys: Output) -> None:
    folder = extract_features(recipe_of(config), Processes())["train"].folder
    assert "features, train: 12/12 images" in capsys.readouterr().err
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]}
    stores = extract_features(recipe_of(config), Processes())
    assert {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]} == before
    assert capsys.readouterr().err == ""
    plain, flipped = stores["train"].read([0, 6])
    half = StoredRows(stores["train"], torch.float16).read(torch.tensor([0]))[0]
    assert half.dtype == torch.float16
    assert torch.equal(half[0].float(), plain)
    zeros, generator = torch.zeros(64, dtype=torch.long), torch.Generator().manual_seed(0)
    seen, _ = StoredRows(stores["train"]).read(zeros, generator=generator)
    is_plain = [torch.equal(row, plain) for row in seen]
    assert {*is_plain} == {True, False}
    assert [not torch.equal(row, flipped) for row in seen] == is_plain
    # A mirrored photo gives other annotation vectors: not the same set in another order.
    assert not torch.allclose(plain.sum(0), flipped.sum(0), atol=1e-3)


def test_photos_loaded_ahead_for_a_gpu_give_the_same_rows(
    config: Config, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    alone = filled(config, tmp_path / "alone")
    monkeypatch.setattr(features, "loading_workers", lambda device, ranks: 2)
    for name, store in filled(config, tmp_path / "ahead").items():
        rows = range(store.record.rows)
        assert torch.equal(store.read(rows), alone[name].read(rows))
    (tmp_path / "photos" / "4.png").write_bytes(b"no photo")
    with pytest.raises(UserError, match=r"4\.png"):
        filled(config, tmp_path / "refused")
    skipping = merged(config, data={"on_problem": "skip"})
    assert filled(skipping, tmp_path / "refused")["train"].unreadable == {4, 10}
    with pytest.raises(UserError, match=r"refused/train lacks 1 photo .*4\.png the first"):
        filled(config, tmp_path / "refused")
    (tmp_path / "photos" / "1.png").unlink()
    capsys.readouterr()
    filled(merged(skipping, features={"mirror": False}), tmp_path / "store")
    left_out, unreadable, train, _ = capsys.readouterr().out.splitlines()
    assert "left out 1 missing image (" in left_out
    assert str(tmp_path / "photos" / "1.png") in left_out
    first = "4.png the first; touch those that can be read now"
    assert unreadable == f"left out 1 photo that could not be read, {first}"
    assert train == f"train: 4 images in {tmp_path / 'store' / 'train'}"


def test_photos_changed_under_their_name_are_encoded_again(config: Config, capsys: Output) -> None:
    before = extract_features(recipe_of(config), Processes())["train"]
    old = before.read(range(before.record.rows))
    train, _, _ = read_training(recipe_of(config).data)
    save_photo(Path(str(train[2].source)), 99, (64, 48))
    capsys.readouterr()
    after = extract_features(recipe_of(config), Processes())["train"]
    said = f"encoded again: 1 photo that changed, {train[2].name} the first"
    assert said in capsys.readouterr().out
    new = after.read(range(before.record.rows))
    count = len(train)
    changed = [row for row in range(2 * count) if not torch.equal(old[row], new[row])]
    assert changed == [2, 2 + count]


def test_pictures_of_another_seed_are_encoded_again(config: Config, capsys: Output) -> None:
    def rows(seed: int) -> Tensor:
        shapes = {"train": 4, "validation": 2, "seed": seed}
        of_seed = {**config, "data": {"format": "shapes", "shapes": shapes}}
        return extract_features(recipe_of(of_seed), Processes())["train"].read(range(4))

    first = rows(0)
    assert torch.equal(first, rows(0))
    assert "encoded again" not in capsys.readouterr().out
    assert not torch.equal(first, rows(1))
    assert "encoded again: 4 photos that changed" in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["stored", "2024"])
def test_features_go_where_the_config_or_the_option_says(
    folder: str, config: Config, tmp_path: Path, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.chdir(tmp_path)
    said = ["--out", folder] if folder == "2024" else ["--set", f"features.folder={folder}"]
    assert main(["features", write_config(tmp_path, config), "--device", "cpu", *said]) == 0
    assert (tmp_path / folder / "train").is_dir()
    assert f"train: 12 images in {folder}" in capsys.readouterr().out
