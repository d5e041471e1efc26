from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file
from samples import save_photo
from scripts_samples import ROOT, run

from captioner.errors import UserError
from captioner.vision.feature_store import FeatureStore

CHANNELS = (32, 64, 128, 128, 256, 256, *[512] * 6)


def mobile_net() -> dict[str, torch.Tensor]:
    """MobileNet v1's shapes up to block 11, with random weights."""
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * (2 / shape[1] / shape[2] / shape[3]) ** 0.5

    tensors = {"conv1.weight": drawn(32, 3, 3, 3), "conv1.bias": torch.zeros(32)}
    for block, (before, after) in enumerate(itertools.pairwise(CHANNELS), start=1):
        tensors[f"depthwise{block}.weight"] = drawn(before, 1, 3, 3)
        tensors[f"depthwise{block}.bias"] = torch.zeros(before)
        tensors[f"pointwise{block}.weight"] = drawn(after, before, 1, 1)
        tensors[f"pointwise{block}.bias"] = torch.zeros(after)
    return tensors


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
def test_a_decoder_trains_on_a_mobilenet_s_maps(tmp_path: Path, config: Path) -> None:
    save_file(mobile_net(), tmp_path / "teacher.safetensors")
    script = str(ROOT / "scripts/mobilenet_features.py")
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
    assert "is in run/model" in said
    scores = json.loads((tmp_path / "run/model/scores.json").read_text())
    table = run(tmp_path, str(ROOT / "scripts/compare_runs.py"), "run").splitlines()
    assert table[2].startswith("| run | ")
    assert f" {scores['CIDEr-D']:.3f} " in table[2]


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("depthwise3.bias", None, r"has no tensor 'depthwise3\.bias'"),
        (
            "pointwise4.weight",
            torch.zeros(128, 100, 1, 1),
            r"'pointwise4\.weight' is \(128, 100, 1, 1\), not \(128, 128, 1, 1\)",
        ),
        (
            "depthwise5.weight",
            torch.zeros(64, 1, 3, 3),
            r"'depthwise5\.weight' is \(64, 1, 3, 3\), not \(256, 1, 3, 3\)",
        ),
        ("depthwise9.bias", torch.zeros(7), r"'depthwise9\.bias' is \(7,\), not \(512,\)"),
        ("conv1.bias", torch.tensor(1.0), r"'conv1\.bias' is \(\), not \(32,\)"),
        ("pointwise11.weight", torch.zeros(384, 512, 1, 1), r"is \(384, .*, not \(512, 512, 1, 1"),
    ],
)
def test_every_layer_is_checked(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    tensor: torch.Tensor | None,
    message: str,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    from mobilenet_features import MobileNet

    changed = {key: each for key, each in mobile_net().items() if key != name}
    save_file(changed if tensor is None else {**changed, name: tensor}, tmp_path / "t.safetensors")
    with pytest.raises(UserError, match=rf"t\.safetensors.*{message}"):
        MobileNet(tmp_path / "t.safetensors")
