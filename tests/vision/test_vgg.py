"""The encoder is torchvision's VGG, cut before the last pooling."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from captioner.errors import UserError
from captioner.vision.vgg import ANNOTATION_SIZE, VGG_NAMES, VGGConfig, VGGEncoder, map_size


def torchvision_features(name: str) -> nn.Module:
    """The convolutions of torchvision's network, without what stands behind the last map."""
    from torchvision.models import get_model  # heavy, and needed for the comparison alone

    with torch.device("meta"):  # its classifier of 120 million weights is not wanted
        features = get_model(name).features
    assert isinstance(features[-1], nn.MaxPool2d)
    return features[:-1].to_empty(device="cpu").eval()  # type: ignore[no-any-return]


def draw_normalisation(encoder: VGGEncoder) -> None:
    """Statistics as if the network had been trained, for every batch normalisation."""
    for module in encoder.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)


@pytest.mark.parametrize("name", VGG_NAMES)
def test_equal_to_torchvision_with_the_same_weights(name: str) -> None:
    torch.manual_seed(0)
    encoder = VGGEncoder(VGGConfig(name)).eval()
    draw_normalisation(encoder)
    reference = torchvision_features(name)
    reference.load_state_dict(encoder.features.state_dict())  # the same names, and no others
    images = torch.randn(2, 3, 48, 80)
    with torch.no_grad():
        found, expected = encoder(images), reference(images)
    assert found.shape == (2, 15, ANNOTATION_SIZE)
    # Row by row from the top left: place 7 of a 3x5 map is row 1, column 2.
    torch.testing.assert_close(found[:, 7], expected[:, :, 1, 2])
    torch.testing.assert_close(found, expected.flatten(2).transpose(1, 2))


@pytest.mark.parametrize("name", VGG_NAMES)
@pytest.mark.parametrize("width", [1.0, 0.3])
def test_a_photo_of_the_usual_size_gives_196_vectors_of_512(name: str, width: float) -> None:
    with torch.device("meta"):
        found = VGGEncoder(VGGConfig(name, width))(torch.empty(5, 3, 224, 224))
    assert found.shape == (5, 196, 512)


def test_width_scales_all_convolutions_but_the_last() -> None:
    with torch.device("meta"):
        features = VGGEncoder(VGGConfig("vgg11_bn", 0.5)).features
    channels = [module.out_channels for module in features if isinstance(module, nn.Conv2d)]
    assert channels == [32, 64, 128, 128, 256, 256, 256, 512]


@pytest.mark.parametrize("size", [(224, 224), (64, 64), (100, 47), (16, 16)])
def test_map_size_is_what_the_encoder_gives(size: tuple[int, int]) -> None:
    with torch.device("meta"):
        found = VGGEncoder(VGGConfig("vgg11", 0.05)).features(torch.empty(1, 3, *size))
    assert tuple(found.shape[2:]) == map_size(*size)


@pytest.mark.parametrize("name", ["vgg12", "VGG19", "vgg19_bn_bn", ""])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"encoder name '{name}' is not one of vgg11, vgg11_bn"):
        VGGConfig(name)


@pytest.mark.parametrize("width", [0.0, -1.0, 1.01, float("nan")])
def test_a_width_out_of_range_is_refused(width: float) -> None:
    with pytest.raises(UserError, match="encoder width"):
        VGGConfig("vgg11", width)
