from __future__ import annotations

from pathlib import Path

import pytest
import torch
from samples import four_photos_config
from scripts_samples import ROOT

from captioner.runs.features import examples_to_store
from captioner.runs.read_recipe import read_recipe
from captioner.vision.feature_store import FeatureStore
from captioner.vision.images import load_image


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return four_photos_config(tmp_path)


def test_a_network_sees_photos_as_they_are(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "default_model"))
    from teacher_features import fill_with_network

    recipe = read_recipe(config, [f"encoder.weights={config.parent}/stand_in.safetensors"])

    def network(photos: torch.Tensor) -> torch.Tensor:
        vectors = torch.zeros(len(photos), 16, 512)
        vectors[:, :, :3] = photos.mean(dim=(2, 3))[:, None]
        return vectors

    fill_with_network(recipe, network)
    plain = recipe.preprocessing.replace(mean=(0, 0, 0), standard_deviation=(1, 1, 1))
    expected = plain(load_image(examples_to_store(recipe)["train"][1].path)).mean(
        dim=(1, 2)
    )  # (3,)
    stored = FeatureStore(config.parent / "features/train").read([1])[0, 0, :3]
    torch.testing.assert_close(stored.float(), expected, atol=1e-3, rtol=0)
