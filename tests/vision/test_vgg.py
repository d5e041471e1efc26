"""The encoder is torchvision's VGG, cut before the last pooling."""

import pytest
import torch
from torch import nn

from captioner.schema import choices
from captioner.vision.encoder import ANNOTATION_SIZE, VGGEncoder
from captioner.vision.encoder_config import VGGConfig


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


@pytest.mark.parametrize("name", choices(VGGConfig.model_fields["name"].annotation))
def test_equal_to_torchvision_with_the_same_weights(name: str) -> None:
    torch.manual_seed(0)
    encoder = VGGEncoder(VGGConfig(name=name)).eval()
    draw_normalisation(encoder)
    reference = torchvision_features(name)
    reference.load_state_dict(encoder.features.state_dict())  # the same names, and no others
    images = torch.randn(2, 3, 48, 80)
    with torch.no_grad():
        found, expected = encoder(images), reference(images)
    assert found.shape == (2, 15, ANNOTATION_SIZE)
    assert encoder.map_shape(48, 80) == (3, 5)
    # Row by row from the top left: place 7 of a 3x5 map is row 1, column 2.
    torch.testing.assert_close(found[:, 7], expected[:, :, 1, 2])
    torch.testing.assert_close(found, expected.flatten(2).transpose(1, 2))


def tiny(name: str = "vgg13_bn") -> VGGEncoder:
    torch.manual_seed(0)
    encoder = VGGEncoder(VGGConfig(name=name, width=0.05))
    draw_normalisation(encoder)
    return encoder


FROZEN = [(0, 0, False), (1, 7, False), (4, 28, False), (0, 0, True)]


@pytest.mark.parametrize(("stages", "first", "batch_norm"), FROZEN)
def test_frozen_layers_stay_as_they_are(stages: int, first: int, batch_norm: bool) -> None:
    """Also the running statistics of batch normalisation; all else moves in a step."""
    encoder = tiny()
    encoder.freeze(stages, batch_norm)
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    encoder.train()
    encoder(torch.randn(4, 3, 32, 32)).square().sum().backward()
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.grad is not None:
                parameter.add_(torch.sign(parameter.grad))
    now = encoder.state_dict()
    moved = {name for name, tensor in now.items() if not torch.equal(tensor, before[name])}
    frozen = set()
    for place, layer in enumerate(encoder.features):
        if place < first or (batch_norm and isinstance(layer, nn.BatchNorm2d)):
            frozen |= {f"features.{place}.{part}" for part in layer.state_dict()}
    assert not moved & frozen
    # Batch normalisation takes away what a convolution's bias adds.
    assert {name for name in before if name.endswith(("weight", "mean"))} - frozen <= moved
    encoder.freeze(0, batch_norm=False)
    assert [n for n, module in encoder.named_modules() if not module.training] == []


def with_context(encoder: VGGEncoder, *context: int) -> VGGEncoder:
    """A copy with convolutions more, as they begin."""
    deeper = VGGEncoder(encoder.config.replace(context=context))
    deeper.load_state_dict(deeper.own_tensors(encoder.state_dict()))
    return deeper.train(encoder.training)


def test_a_vector_sees_as_far_as_the_dilations_of_its_context() -> None:
    encoder = with_context(tiny("vgg11"), 2, 4)
    nn.init.normal_(encoder.context[0].weight, std=0.1)
    nn.init.normal_(encoder.context[2].weight, std=0.1)
    features = torch.rand(1, ANNOTATION_SIZE, 15, 15, requires_grad=True)
    encoder.context(features)[0, :, 7, 7].sum().backward()
    seen = features.grad[0].abs().sum(dim=0).nonzero()
    # Each convolution reads nine places: three rows and columns, as far apart as it is dilated.
    expected = [[row, column] for row in range(1, 14, 2) for column in range(1, 14, 2)]
    assert seen.tolist() == expected


def test_context_begins_as_the_identity_and_is_frozen_with_the_last_stage() -> None:
    plain = tiny().eval()
    encoder = with_context(plain, 1, 4)
    images = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        torch.testing.assert_close(encoder(images), plain(images), rtol=1e-4, atol=1e-4)
        draw_normalisation(encoder)
        folded = encoder.fold_batch_norm()
        torch.testing.assert_close(folded(images), encoder(images), rtol=1e-4, atol=1e-4)
    encoder.freeze(5, batch_norm=False)
    assert [n for n, weight in encoder.context.named_parameters() if weight.requires_grad] == []
