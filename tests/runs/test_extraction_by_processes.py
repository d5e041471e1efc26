"""Features of a recipe by several processes: the same rows as by one, whatever happens to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from samples import save_photo

from captioner.errors import UserError
from captioner.runs import feature_extraction
from captioner.runs.annotation_rows import StoredRows
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.feature_extraction import fill_stores
from captioner.schema import from_mapping
from captioner.training import Engine
from captioner.vision.feature_store import FeatureStore

TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")

PHOTOS = {"train": 6, "val": 2}


@pytest.fixture
def mapping(tmp_path: Path) -> dict[str, object]:
    """A recipe of eight small photos, six of them to train on, mirrored as well."""
    lines = []
    for split, count in PHOTOS.items():
        for number in range(count):
            name = f"{split}{number}.png"
            save_photo(tmp_path / "photos" / name, seed=len(lines))
            lines.append(json.dumps({"image": name, "caption": "a photo", "split": split}))
    (tmp_path / "captions.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return {
        "data": {
            "format": "table",
            "annotations": str(tmp_path / "captions.jsonl"),
            "images": str(tmp_path / "photos"),
        },
        "preprocessing": {"size": 32, "resize": "squash"},
        "encoder": {"name": "vgg11_bn", "width": 0.05, "weights": "random"},
        "features": {"folder": str(tmp_path / "store"), "mirror": True, "batch_size": 2},
    }


def recipe_in(mapping: dict[str, object], folder: Path | None = None) -> CaptioningRecipe:
    features = {**mapping["features"]}  # type: ignore[dict-item]
    if folder is not None:
        features["folder"] = str(folder)
    return from_mapping(CaptioningRecipe, {**mapping, "features": features}, "recipe")


def command(
    mapping: dict[str, object], tmp_path: Path, *more: str, launcher: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """The command `more`, with the recipe as its config."""
    (tmp_path / "config.json").write_text(json.dumps(mapping))  # JSON is YAML.
    name, *options = more
    path = str(Path(feature_extraction.__file__).parents[2])
    return subprocess.Popen(
        [
            *(sys.executable, "-m", *launcher, "captioner", name, str(tmp_path / "config.json")),
            *("--device", "cpu", *options),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [(), TORCHRUN], ids=["two commands", "two processes"])
def test_several_processes_make_one_store(
    mapping: dict[str, object], tmp_path: Path, launcher: tuple[str, ...]
) -> None:
    runs = [command(mapping, tmp_path, "features", launcher=launcher)]
    if not launcher:
        runs.append(command(mapping, tmp_path, "features"))
    for run, (output, errors) in zip(
        runs, [each.communicate(timeout=120) for each in runs], strict=True
    ):
        assert run.returncode == 0, errors
        for line in ("train: 12 images in", "validation: 2 images in"):
            assert output.count(line) == 1
        assert "Traceback" not in errors
    alone = fill_stores(recipe_in(mapping, tmp_path / "alone"), Engine())
    for name, store in alone.items():
        rows = range(len(store))
        assert torch.equal(FeatureStore(tmp_path / "store" / name).read(rows), store.read(rows))


def test_photos_loaded_ahead_for_a_gpu_give_the_same_rows(
    mapping: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = fill_stores(recipe_in(mapping, tmp_path / "alone"), Engine())
    monkeypatch.setattr(feature_extraction, "loading_workers", lambda device, ranks: 2)
    ahead = fill_stores(recipe_in(mapping), Engine())
    for name, store in alone.items():
        rows = range(len(store))
        assert torch.equal(ahead[name].read(rows), store.read(rows))
    (tmp_path / "photos" / "train4.png").write_bytes(b"no photo")
    with pytest.raises(UserError, match=r"train4\.png"):
        fill_stores(recipe_in(mapping, tmp_path / "refused"), Engine())
    mapping["data"] = {**mapping["data"], "on_problem": "skip"}  # type: ignore[dict-item]
    store = fill_stores(recipe_in(mapping, tmp_path / "refused"), Engine())["train"]
    assert store.unreadable == {4, 10}


def test_rows_are_of_the_type_asked_for(mapping: dict[str, object]) -> None:
    store = fill_stores(recipe_in(mapping), Engine())["train"]
    rows = torch.tensor([3, 0])
    assert StoredRows(store).read(rows).dtype == torch.float32
    half = StoredRows(store, torch.float16).read(rows)
    assert half.dtype == torch.float16
    assert torch.equal(half.float(), store.read([3, 0]))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_gpu_fills_a_store_as_a_cpu_does(mapping: dict[str, object], tmp_path: Path) -> None:
    alone = fill_stores(recipe_in(mapping, tmp_path / "alone"), Engine())
    both = fill_stores(recipe_in(mapping), Engine("cuda"))
    for name, store in alone.items():
        rows = range(len(store))
        torch.testing.assert_close(both[name].read(rows), store.read(rows), rtol=0.02, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["features", "train"])
def test_a_photo_that_one_of_several_processes_cannot_read_ends_all_soon(
    mapping: dict[str, object], tmp_path: Path, name: str
) -> None:
    """Nobody writes the rows of that process; the other does not wait for them."""
    (tmp_path / "photos" / "train3.png").write_bytes(b"no photo")
    more = ("--out", str(tmp_path / "run"))
    ended = command(mapping, tmp_path, name, *more, launcher=TORCHRUN)
    _, errors = ended.communicate(timeout=120)
    assert ended.returncode != 0
    said = [line for line in errors.splitlines() if line.startswith("captioner: ")]
    assert len(said) == 1, errors
    assert "train3.png" in said[0]
