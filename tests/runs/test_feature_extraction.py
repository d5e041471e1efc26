from __future__ import annotations

from pathlib import Path

import pytest
import torch
from samples import four_photos_config

from captioner.errors import UserError
from captioner.runs import feature_extraction
from captioner.runs.captioning_recipe import CaptioningRecipe, read_recipe
from captioner.runs.feature_extraction import (
    encode,
    encoder_of,
    extraction_progress,
    fill_stores,
    source_stores,
    sources_to_store,
)
from captioner.training import Engine
from captioner.vision.vgg import VGGConfig, VGGEncoder


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return four_photos_config(tmp_path)


def recipe(config: Path, precision: str) -> CaptioningRecipe:
    return read_recipe(config, [f"features.precision={precision}"])


def test_products_in_bfloat16_give_nearly_the_same_features() -> None:
    torch.manual_seed(0)
    encoder = VGGEncoder(VGGConfig(name="vgg11_bn", width=0.05)).eval()
    photos = torch.randn(2, 3, 64, 64)
    wide, narrow = encode(encoder, photos), encode(encoder, photos, "bfloat16")
    assert wide.dtype == torch.float32
    assert not torch.equal(wide, narrow.float())
    assert float((wide - narrow).norm() / wide.norm()) < 0.03
    torch.testing.assert_close(wide, encoder(photos).detach())


def test_convolutions_have_the_channels_last(config: Path) -> None:
    """The order of a GPU's fast convolutions, in weights and photos."""
    encoder = encoder_of(recipe(config, "float32"))
    tensors = [each for each in encoder.parameters() if each.dim() == 4]
    encoder.register_forward_pre_hook(lambda _, arguments: tensors.append(arguments[0]))
    encode(encoder, torch.rand(2, 3, 64, 64))
    assert len(tensors) == 9
    assert all(each.is_contiguous(memory_format=torch.channels_last) for each in tensors)


def test_a_store_of_one_precision_is_not_taken_for_one_of_another(config: Path) -> None:
    stores = fill_stores(recipe(config, "bfloat16"), Engine())
    again = fill_stores(recipe(config, "bfloat16"), Engine())
    assert torch.equal(stores["train"].read([0, 1]), again["train"].read([0, 1]))
    with pytest.raises(
        UserError, match=r"was made with encoder\.precision 'bfloat16', not 'float32'"
    ):
        fill_stores(recipe(config, "float32"), Engine())


def test_progress_counts_the_rows_of_all_processes(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = read_recipe(config)
    encoder = encoder_of(found)
    stores = source_stores(found, encoder, sources_to_store(found))
    with extraction_progress(stores.values()):
        for store in stores.values():
            for rank in (1, 0):
                store.fill(encoder, rank, 2)
    assert "features: 4/4 images" in capsys.readouterr().err.splitlines()[-1]
    with extraction_progress(stores.values()) as report:
        report()
    assert capsys.readouterr().err == ""


def test_a_finished_store_may_be_read_only(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_stores(read_recipe(config), Engine())
    monkeypatch.setattr(feature_extraction, "StoreWriter", None)
    assert len(fill_stores(read_recipe(config), Engine())["train"]) == 2
