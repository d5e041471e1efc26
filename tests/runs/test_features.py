"""Feature stores of a recipe, by one process or several: the same rows, whatever happens."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from run_samples import SMALL, Config, ended, make_table, merged, recipe_of, start, write_config
from samples import Output, Patch

from captioner.errors import UserError
from captioner.runs import features
from captioner.runs.captioning_recipe import read_training
from captioner.runs.features import (
    PixelRows,
    StoredRows,
    encoder_of,
    example_stores,
    extract_features,
)
from captioner.training.distributed import Engine
from captioner.vision.feature_store import FeatureStore
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import VGGConfig, VGGEncoder


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A recipe of eight photos, six of them to train on, mirrored as well."""
    features = {"folder": str(tmp_path / "store"), "mirror": True, "batch_size": 2}
    return {**SMALL, "data": make_table(tmp_path), "features": features}


def filled(config: Config, folder: Path, device: str = "cpu") -> dict[str, FeatureStore]:
    return extract_features(recipe_of(config, features={"folder": str(folder)}), Engine(device))


def assert_same_rows(found: dict[str, FeatureStore], expected: dict[str, FeatureStore]) -> None:
    for name, store in expected.items():
        rows = range(len(store))
        assert torch.equal(found[name].read(rows), store.read(rows))


def test_products_in_bfloat16_give_nearly_the_same_features() -> None:
    torch.manual_seed(0)
    encoder = VGGEncoder(VGGConfig(name="vgg11_bn", width=0.05)).eval()
    pixels = torch.randint(256, (2, 3, 64, 64), dtype=torch.uint8)
    rows = PixelRows([], Preprocessing(size=64), encoder)
    wide, narrow = rows.encode(pixels), replace(rows, precision="bfloat16").encode(pixels)
    assert wide.dtype == torch.float32
    assert not torch.equal(wide, narrow)
    assert float((wide - narrow).norm() / wide.norm()) < 0.03
    torch.testing.assert_close(wide, encoder(Preprocessing(size=64).normalise(pixels)).detach())


def test_photos_are_encoded_once_with_the_channels_last(config: Config) -> None:
    """The order of a GPU's fast convolutions, in weights and photos."""
    recipe = recipe_of(config)
    encoder = encoder_of(recipe)
    tensors = [each for each in encoder.parameters() if each.dim() == 4]
    encoder.register_forward_pre_hook(lambda _, arguments: tensors.append(arguments[0]))
    photos = PixelRows(read_training(recipe.data)[0], recipe.preprocessing, encoder)
    pixels, of_row = photos.read(torch.tensor([4, 0, 3, 0]))
    assert of_row is not None
    assert of_row.tolist() == [2, 0, 1, 0]
    encoded = photos.encode(pixels)
    assert encoded.shape == (3, 16, 512)
    assert not encoded.requires_grad
    assert len(tensors) == 8 + 2  # A CPU encodes two at a time.
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in tensors)


def test_a_store_of_one_precision_is_not_taken_for_one_of_another(config: Config) -> None:
    narrow = recipe_of(config, features={"precision": "bfloat16"})
    assert_same_rows(extract_features(narrow, Engine()), extract_features(narrow, Engine()))
    with pytest.raises(UserError, match=r"made with another encoder\.precision;"):
        extract_features(recipe_of(config), Engine())


def test_the_default_store_is_of_one_encoder_and_preprocessing(
    config: Config, tmp_path: Path
) -> None:
    """So that a run begun anew in the folder of another that was stopped early has its own."""
    for changes in ({}, {"encoder": {"width": 0.1}}, {"preprocessing": {"size": 96}}):
        recipe = recipe_of(config, features={"folder": None}, **changes)
        splits = {"train": read_training(recipe.data)[0]}
        example_stores(recipe, encoder_of(recipe), splits, tmp_path)
    names = sorted(folder.name[:-8] for folder in (tmp_path / "features").iterdir())
    assert names == ["vgg11_bn-64-", "vgg11_bn-64-", "vgg11_bn-96-"]


def test_a_finished_store_may_be_read_only(
    config: Config, monkeypatch: Patch, capsys: Output
) -> None:
    extract_features(recipe_of(config), Engine())
    shown = capsys.readouterr().err.splitlines()
    assert "features, train: 12/12 images" in shown[0]
    assert "features, validation: 2/2 images" in shown[-1]
    monkeypatch.setattr(features, "StoreWriter", None)
    assert len(extract_features(recipe_of(config), Engine())["train"]) == 12
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"features": {"folder": None}},
        {"features": {"mirror": False}, "encoder": {"train": True}},
    ],
)
def test_nothing_to_store_or_nowhere_to(config: Config, changes: Config) -> None:
    with pytest.raises(UserError, match=r"no folder for features: give --out"):
        extract_features(recipe_of(config, **changes), Engine())


def test_rows_are_of_the_type_asked_for_and_mirrored_at_random(config: Config) -> None:
    stores = extract_features(recipe_of(config), Engine())
    assert [len(store) for store in stores.values()] == [12, 2]
    rows, half = (StoredRows(stores["train"], each) for each in (torch.float32, torch.float16))
    assert rows.read(torch.tensor([3, 0]))[0].dtype == torch.float32
    assert half.read(torch.tensor([3, 0]))[0].dtype == torch.float16
    plain, flipped = stores["train"].read([0, 6])
    assert torch.equal(half.read(torch.tensor([0]))[0][0].float(), plain)
    zeros, generator = torch.zeros(64, dtype=torch.long), torch.Generator().manual_seed(0)
    seen, _ = rows.read(zeros, generator=generator)
    assert {bool(torch.equal(row, plain)) for row in seen} == {True, False}
    assert all(torch.equal(row, plain) or torch.equal(row, flipped) for row in seen)
    # A mirrored photo gives other annotation vectors: not the same set in another order.
    assert not torch.allclose(plain.sum(0), flipped.sum(0), atol=1e-3)


# By several processes.


def test_photos_loaded_ahead_for_a_gpu_give_the_same_rows(
    config: Config, tmp_path: Path, monkeypatch: Patch
) -> None:
    alone = filled(config, tmp_path / "alone")
    monkeypatch.setattr(features, "loading_workers", lambda device, ranks: 2)
    assert_same_rows(filled(config, tmp_path / "ahead"), alone)
    (tmp_path / "photos" / "4.png").write_bytes(b"no photo")
    with pytest.raises(UserError, match=r"4\.png"):
        filled(config, tmp_path / "refused")
    skipping = merged(config, data={"on_problem": "skip"})
    assert filled(skipping, tmp_path / "refused")["train"].unreadable == {4, 10}
    with pytest.raises(UserError, match=r"refused/train lacks photos: .*4\.png"):
        filled(config, tmp_path / "refused")


def test_what_is_left_out_is_reported(config: Config, tmp_path: Path, capsys: Output) -> None:
    photos = tmp_path / "photos"
    (photos / "1.png").unlink()
    (photos / "4.png").write_bytes(b"no photo")
    skipping = merged(config, data={"on_problem": "skip"}, features={"mirror": False})
    extract_features(recipe_of(skipping), Engine())
    left_out, unreadable, train, validation = capsys.readouterr().out.splitlines()
    assert "left out 1 missing image (" in left_out
    assert f"no file {photos / '1.png'}" in left_out
    assert unreadable.startswith("left out 1 photo that could not be read, the first: ")
    assert "4.png is not an image" in unreadable
    assert train == f"train: 4 images in {tmp_path / 'store' / 'train'}"
    assert validation == f"validation: 2 images in {tmp_path / 'store' / 'validation'}"


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2], ids=["two commands", "two processes"])
def test_several_processes_make_one_store(config: Config, tmp_path: Path, processes: int) -> None:
    path = write_config(tmp_path, config)
    commands = [start("features", path, processes=processes) for _ in range(1 if processes else 2)]
    for code, output, errors in map(ended, commands):
        assert code == 0, errors
        for line in ("train: 12 images in", "validation: 2 images in"):
            assert output.count(line) == 1
        assert "Traceback" not in errors
    found = {name: FeatureStore(tmp_path / "store" / name) for name in ("train", "validation")}
    assert_same_rows(found, filled(config, tmp_path / "alone"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["features", "train"])
def test_a_photo_that_one_of_several_processes_cannot_read_is_reported_once(
    config: Config, tmp_path: Path, name: str
) -> None:
    """Each process meets it: one reads it as it is, the other mirrored."""
    (tmp_path / "photos" / "3.png").write_bytes(b"no photo")
    path, out = write_config(tmp_path, config), str(tmp_path / "run")
    code, _, errors = ended(start(name, path, "--out", out, processes=2))
    assert code != 0
    said = [line for line in errors.splitlines() if line.startswith("captioner: ")]
    assert len(said) == 1
    assert "3.png" in said[0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_gpu_fills_a_store_as_a_cpu_does(config: Config, tmp_path: Path) -> None:
    alone, both = filled(config, tmp_path / "alone"), filled(config, tmp_path / "both", "cuda")
    for name, store in alone.items():
        rows = range(len(store))
        torch.testing.assert_close(both[name].read(rows), store.read(rows), rtol=0.02, atol=0.02)
