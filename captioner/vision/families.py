"""The families of encoders by their names; imports no torch until an encoder is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, NamedTuple

from captioner.errors import did_you_mean, near_names
from captioner.schema import choices
from captioner.vision.encoder_config import (
    EfficientNetConfig,
    EncoderConfig,
    NetworkConfig,
    VGGConfig,
)

if TYPE_CHECKING:
    from captioner.vision.encoder import Encoder


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
    Family("captioner.vision.efficientnet:EfficientNetEncoder", EfficientNetConfig),
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
