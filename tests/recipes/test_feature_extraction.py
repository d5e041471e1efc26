from __future__ import annotations

from pathlib import Path

import pytest
import torch
from samples import save_photo

from captioner.errors import UserError
from captioner.recipes import feature_workers, features
from captioner.recipes.config import CaptioningRecipe, read_recipe
from captioner.recipes.feature_extraction import (
    encode,
    fill_stores,
    seeded_encoder_of,
    source_stores,
    sources_to_store,
)
from captioner.recipes.features import store_recipe_features, stored_features
from captioner.vision.vgg import VGGConfig, VGGEncoder


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A table of four photos."""
    lines = ["image,caption,split"]
    for number in range(4):
        photo = save_photo(tmp_path / f"{number}.jpg", seed=number)
        lines.append(f"{photo.name},a photo,{'train' if number < 2 else 'val'}")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    path = tmp_path / "config.yaml"
    path.write_text(
        f"data: {{format: table, annotations: {tmp_path}/table.csv, images: {tmp_path}}}\n"
        "minimum_count: 1\n"
        "preprocessing: {size: 64, resize: squash}\n"
        "encoder: {name: vgg11_bn, width: 0.05, weights: random}\n"
        f"features: {{folder: {tmp_path}/features}}\n"
    )
    return path


def recipe(config: Path, precision: str) -> CaptioningRecipe:
    return read_recipe(config, [f"features.precision={precision}"])


def test_products_in_bfloat16_give_nearly_the_same_features() -> None:
    torch.manual_seed(0)
    encoder = VGGEncoder(VGGConfig("vgg11_bn", 0.05)).eval()
    photos = torch.randn(2, 3, 64, 64)
    wide, narrow = encode(encoder, photos), encode(encoder, photos, "bfloat16")
    assert wide.dtype == torch.float32
    assert not torch.equal(wide, narrow.float())
    assert float((wide - narrow).norm() / wide.norm()) < 0.03
    torch.testing.assert_close(wide, encoder(photos).detach())


def test_a_store_of_one_precision_is_not_taken_for_one_of_another(config: Path) -> None:
    stores = store_recipe_features(recipe(config, "bfloat16"))
    again = store_recipe_features(recipe(config, "bfloat16"))
    assert torch.equal(stores["train"].read([0, 1]), again["train"].read([0, 1]))
    with pytest.raises(UserError, match="was made with another encoder"):
        store_recipe_features(recipe(config, "float32"))


def test_an_unknown_precision_is_refused(config: Path) -> None:
    with pytest.raises(UserError, match="features precision 'float8' is not one of"):
        recipe(config, "float8")


def test_the_last_line_of_progress_counts_what_others_did(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_recipe(config)
    encoder = seeded_encoder_of(found)
    sources = sources_to_store(found)
    assert found.features.folder is not None
    own, others = (source_stores(found, found.features.folder, encoder, sources) for _ in range(2))
    with features._Display(list(own.values())):
        fill_stores(others.values(), encoder, lambda waiting: None)
        fill_stores(own.values(), encoder, lambda waiting: None)
    assert "features: 4/4 images" in capsys.readouterr().err.splitlines()[-1]


def test_processes_that_share_the_work_need_file_locks(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read_recipe(config)
    encoder = seeded_encoder_of(found)
    sources = sources_to_store(found)
    monkeypatch.setattr(feature_workers, "try_lock", lambda descriptor: None)
    folder = config.parent / "run"
    with pytest.raises(UserError, match=r"without file locks.*captioner features --processes 1"):
        stored_features(found, folder, encoder, sources, processes=2)
    stored_features(found, folder, encoder, sources, processes=1)
    stored_features(found, folder, encoder, sources, processes=2)  # There is nothing left to do.
