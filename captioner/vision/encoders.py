"""The families of encoders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from captioner.errors import did_you_mean, near_names
from captioner.schema import choices
from captioner.vision.encoder import Encoder, EncoderConfig
from captioner.vision.vgg import VGGConfig, VGGEncoder


class Family(NamedTuple):
    """An encoder and the fields of its config, whose `name` lists the names of the family."""

    encoder: type[Encoder]
    config: type[EncoderConfig]


FAMILIES = [
    Family(VGGEncoder, VGGConfig),
]


def family_of(name: Any) -> Family:
    """The family that lists a name. Raises `ValueError` with the nearest names if none does."""
    families = {
        each: family
        for family in FAMILIES
        for each in choices(family.config.model_fields["name"].annotation)
    }
    if isinstance(name, str) and name in families:
        return families[name]
    near = did_you_mean(near_names(name, families))
    raise ValueError(f"name {name!r} is not one of {', '.join(families)}{near}")


def encoder_config(values: Any) -> Any:
    """Validate the fields of an encoder by the family of its name; for pydantic's validators."""
    if not isinstance(values, Mapping):
        return values
    return family_of(values.get("name", "vgg19")).config.model_validate(dict(values))


def make_encoder(config: EncoderConfig) -> Encoder:
    """The encoder of a configuration, with fresh weights."""
    return family_of(config.name).encoder(config)
