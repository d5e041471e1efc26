"""The families of encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from captioner.errors import did_you_mean, near_names
from captioner.schema import choices
from captioner.vision.encoder import Encoder, EncoderConfig
from captioner.vision.timm_encoder import TimmConfig, TimmEncoder
from captioner.vision.torchvision_encoder import TorchvisionConfig, TorchvisionEncoder
from captioner.vision.vgg import VGGConfig, VGGEncoder


class Family(NamedTuple):
    """An encoder and the fields of its config.

    The config's `name` lists the names of the family, or all of them begin with `prefix`.
    """

    encoder: type[Encoder]
    config: type[EncoderConfig]
    prefix: str = ""


FAMILIES = [
    Family(VGGEncoder, VGGConfig),
    Family(TimmEncoder, TimmConfig, "timm/"),
    Family(TorchvisionEncoder, TorchvisionConfig, "torchvision/"),
]


def family_of(name: Any) -> Family:
    """The family of a name. Raises `ValueError` with the nearest names if there is none."""
    for family in FAMILIES:
        if isinstance(name, str) and family.prefix and name.startswith(family.prefix):
            return family
    families = {
        each: family
        for family in FAMILIES
        for each in choices(family.config.model_fields["name"].annotation)
    }
    if isinstance(name, str) and name in families:
        return families[name]
    near = did_you_mean(near_names(name, families))
    known = [*families, *(f"{family.prefix}NAME" for family in FAMILIES if family.prefix)]
    raise ValueError(f"name {name!r} is not one of {', '.join(known)}{near}")


def encoder_config(values: Any) -> Any:
    """Validate the fields of an encoder by the family of its name; for pydantic's validators."""
    if not isinstance(values, Mapping):
        return values
    return family_of(values.get("name", "vgg19")).config.model_validate(dict(values))


def make_encoder(config: EncoderConfig) -> Encoder:
    """The encoder of a configuration, with fresh weights."""
    return family_of(config.name).encoder(config)
