"""The configs of encoders, and their families; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from captioner.errors import did_you_mean, near_names
from captioner.schema import Kinds, Share, choices

if TYPE_CHECKING:
    from captioner.vision.encoder import Encoder


class EncoderConfig(Kinds):
    """The name and sizes of an encoder; a family's subclass narrows `name` to its names."""

    name: str


class VGGConfig(EncoderConfig):
    """Which VGG it is."""

    name: Literal[
        "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"
    ] = Field("vgg19", description="torchvision's name of the VGG; bn for batch normalisation")
    width: Share = Field(
        1.0,
        description="factor on the channels of every convolution but the last; ImageNet weights "
        "need 1",
    )
    rank: Share = Field(
        1.0,
        repr=False,  # Keeps older digests valid; split weights differ by their names and shapes.
        description="below 1, each convolution behind the first pooling is two: a 3x3 one with "
        "this share of its channels, and a 1x1 one; those of the context stay whole. ImageNet "
        "weights need 1",
    )
    context: tuple[Annotated[int, Field(ge=1, le=14, strict=True)], ...] = Field(
        (),
        strict=False,
        description="dilations of convolutions behind the last, which begin by changing nothing",
    )


class NetworkConfig(EncoderConfig):
    """A network by its name in a library, behind the name of the library: `timm/resnet101`."""

    name: str = Field(
        description='timm/ and a name of timm\'s, which needs "captioner[timm]", or torchvision/ '
        "and a name of torchvision's classifiers"
    )

    @property
    def library_name(self) -> str:
        """Its name in the library."""
        return self.name.partition("/")[2]


class Family(NamedTuple):
    """An encoder, by `module:class`, and its config.

    The config's `name` lists the names, or all begin with `prefix`.
    """

    encoder_path: str
    config: type[EncoderConfig]
    prefix: str = ""

    @property
    def encoder(self) -> type[Encoder]:
        """The encoder, whose module imports torch."""
        return resolve_name(self.encoder_path)  # type: ignore[no-any-return]


FAMILIES = [
    Family("captioner.vision.encoder:VGGEncoder", VGGConfig),
    Family("captioner.vision.encoder_families:TimmEncoder", NetworkConfig, "timm/"),
    Family("captioner.vision.encoder_families:TorchvisionEncoder", NetworkConfig, "torchvision/"),
]


def family_of(name: object) -> Family:
    """The family of a name. Raises `ValueError` with the nearest names if there is none."""
    families = {
        start: family
        for family in FAMILIES
        for start in choices(family.config.model_fields["name"].annotation) or [family.prefix]
    }
    start = "".join(str(name).partition("/")[:2])
    if start in families:
        return families[start]
    near = did_you_mean(near_names(name, families))
    raise ValueError(f"name {name!r} is not one of {', '.join(families)}{near}")


def encoder_config(values: object) -> Any:
    """Validate the fields of an encoder by the family of its name, for pydantic."""
    if not isinstance(values, Mapping):
        return values
    return family_of(values.get("name", "vgg19")).config.model_validate(dict(values))
