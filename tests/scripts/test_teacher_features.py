from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from safetensors.torch import save_file
from samples import save_photo
from scripts_samples import ROOT, mobile_net, run

from captioner.vision.feature_store import FeatureStore


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    """MobileNet v1's shapes, with weights drawn at random."""
    save_file(mobile_net(1.0, last=12), tmp_path / "teacher.safetensors")
    return tmp_path / "teacher.safetensors"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Four photos, and all that is small."""
    lines = ["image,caption,split"]
    for number in range(4):
        save_photo(tmp_path / f"photos/{number}.jpg", seed=number)
        lines.append(f"{number}.jpg,a photo of {number},{'train' if number < 2 else 'val'}")
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    content = {
        "data": {"format": "table", "annotations": "table.csv", "images": "photos"},
        "minimum_count": 1,
        "preprocessing": {"size": 64, "resize": "squash"},
        "encoder": {"name": "vgg11_bn", "width": 0.05, "weights": "stand_in.safetensors"},
        "features": {"folder": "features", "mirror": True},
        "decoder": {"embedding_size": 8, "hidden_size": 8, "attention_size": 8},
        "training": {"epochs": 1, "batch_size": 2},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    return tmp_path / "config.yaml"


@pytest.mark.slow
def test_a_decoder_trains_on_what_the_teacher_sees(
    tmp_path: Path, config: Path, teacher: Path
) -> None:
    script = str(ROOT / "scripts/default_model/teacher_features.py")
    said = run(tmp_path, script, "config.yaml", "--teacher", "teacher.safetensors")
    assert "train: 4 images" in said
    assert "validation: 2 images" in said
    seen = FeatureStore(tmp_path / "features/train").read([0, 1, 2, 3])  # (4, L, D)
    assert seen.shape == (4, 16, 512)
    # Over the training photos, not mirrored, every channel that says anything varies by one.
    spread = seen[:2].flatten(end_dim=1).std(dim=0)  # (D,)
    assert bool((spread < 1.01).all())
    assert float((spread > 0.99).float().mean()) > 0.7
    said = run(tmp_path, "-m", "captioner", "train", "config.yaml", "--out", "run")
    assert "the best model is in run/model" in said
    scores = json.loads((tmp_path / "run/model/scores.json").read_text())
    table = run(tmp_path, str(ROOT / "scripts/compare_runs.py"), "run").splitlines()
    assert table[2].startswith("| run | ")
    assert f" {scores['CIDEr-D']:.3f} " in table[2]
