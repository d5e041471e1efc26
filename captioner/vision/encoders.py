"""The families of encoders, and building one with its weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from captioner.errors import did_you_mean, near_names
from captioner.model_folders import WEIGHTS, complete_folder, model_folder
from captioner.schema import choices
from captioner.vision.encoder import WEIGHT_SUFFIXES, Encoder, EncoderConfig, read_weights
from captioner.vision.network_encoder import NetworkConfig, TimmEncoder, TorchvisionEncoder
from captioner.vision.vgg import VGGConfig, VGGEncoder
from captioner.weight_files import fill

PRETRAINED, IMAGENET, RANDOM = ("pretrained", "imagenet", "random")
"""Weights without a path. Pretrained and imagenet are the same: the published ones."""


class Family(NamedTuple):
    """An encoder and the fields of its config.

    The config's `name` lists the names of the family, or all of them begin with `prefix`.
    """

    encoder: type[Encoder]
    config: type[EncoderConfig]
    prefix: str = ""


FAMILIES = [
    Family(VGGEncoder, VGGConfig),
    Family(TimmEncoder, NetworkConfig, "timm/"),
    Family(TorchvisionEncoder, NetworkConfig, "torchvision/"),
]


def family_of(name: Any) -> Family:
    """The family of a name. Raises `ValueError` with the nearest names if there is none."""
    families = {
        each: family
        for family in FAMILIES
        for each in choices(family.config.model_fields["name"].annotation) or [family.prefix]
    }
    library, slash, _ = str(name).partition("/")
    if library + slash in families:
        return families[library + slash]
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


def build_encoder(config: EncoderConfig, weights: str) -> Encoder:
    """An encoder with its weights, in evaluation mode.

    weights: `pretrained`, `imagenet`, `random`, a `.safetensors` or `.pth` file with the library's
        names (`features.0.weight`, ...; others are ignored), or a model, by name or by folder.
    """
    encoder = make_encoder(config)
    if weights == RANDOM:
        return encoder.eval()
    if weights in (PRETRAINED, IMAGENET):
        state, source = encoder.pretrained_weights(), "the published weights"
    else:
        path = Path(weights)
        if not os.path.isfile(path) and path.suffix not in WEIGHT_SUFFIXES:
            path = complete_folder(model_folder(path)) / WEIGHTS
        state, source = read_weights(path), str(path)
    sizes = config.model_dump(exclude={"name"}, exclude_defaults=True)
    description = ", ".join([config.name, *(f"{name} {value}" for name, value in sizes.items())])
    fill(encoder, encoder.own_tensors(state), f"{source} does not fit {description}")
    return encoder.eval()
