"""Builds an encoder with published weights, a file's, or random ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.errors import UserError
from captioner.model_folders import WEIGHTS, complete_folder, model_folder
from captioner.vision.encoder import Encoder, EncoderConfig
from captioner.vision.encoders import make_encoder
from captioner.vision.torchvision_weights import damage
from captioner.weight_files import fill, read_tensors

NAMED = PRETRAINED, IMAGENET, RANDOM = ("pretrained", "imagenet", "random")
"""Weights without a path. Pretrained and imagenet are the same: the published ones."""

SUFFIXES = (".safetensors", ".pth", ".pt")


def build_encoder(config: EncoderConfig, weights: str) -> Encoder:
    """An encoder with its weights, in evaluation mode.

    weights: `pretrained`, `imagenet`, `random`, a `.safetensors` or `.pth` file with the library's
        names (`features.0.weight`, ...; others are ignored), or a model, by name or by folder.
    Raises `UserError` if the weights cannot be read or do not fit.
    """
    encoder = make_encoder(config)
    if weights in (PRETRAINED, IMAGENET):
        _fill_encoder(encoder, encoder.pretrained_weights(), "the published weights")
    elif weights != RANDOM:
        path = Path(weights)
        if not os.path.isfile(path) and path.suffix not in SUFFIXES:
            path = complete_folder(model_folder(path)) / WEIGHTS
        _fill_encoder(encoder, read_weights(path), str(path))
    return encoder.eval()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a `.safetensors` file, or of a `.pth`/`.pt` file without running code.

    Raises `UserError` if the file is missing, of another kind, or damaged.
    """
    if not path.is_file():
        raise UserError(f"weights file {path} does not exist")
    if path.suffix == ".safetensors":
        return read_tensors(path)
    if path.suffix not in SUFFIXES:
        raise UserError(f"weights file {path} is neither .safetensors nor .pth")
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many types of errors for damaged files.
        raise UserError(f"weights file {path} cannot be read ({damage(error)})") from None
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in state.items()
    ):
        raise UserError(f"weights file {path} does not hold named tensors")
    return state


def _fill_encoder(encoder: Encoder, state: dict[str, Tensor], source: str) -> None:
    """Fill an encoder from a state's own tensors. Raises `UserError` as `fill`."""
    sizes = encoder.config.model_dump(exclude={"name"}, exclude_defaults=True).items()
    of_sizes = ", ".join(f"{name} {value}" for name, value in sizes)
    description = f"{encoder.config.name} of {of_sizes}" if sizes else encoder.config.name
    fill(encoder, encoder.own_tensors(state), f"{source} does not fit {description}")
