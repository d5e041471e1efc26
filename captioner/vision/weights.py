"""Builds an encoder with torchvision's ImageNet weights, a file's, or random ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.errors import UserError
from captioner.vision.encoder import Encoder, EncoderConfig
from captioner.vision.encoders import make_encoder
from captioner.vision.torchvision_weights import damage
from captioner.weight_files import fill, read_tensors

IMAGENET = "imagenet"
"""Instead of a path: torchvision's ImageNet weights."""

RANDOM = "random"
"""Instead of a path: random weights."""


def build_encoder(config: EncoderConfig, weights: str) -> Encoder:
    """An encoder with its weights, in evaluation mode.

    weights: `imagenet`, `random`, a `.safetensors` or `.pth` file with torchvision's names
        (`features.0.weight`, ...; others are ignored), or a model folder.
    Raises `UserError` if the weights cannot be read or do not fit.
    """
    encoder = make_encoder(config)
    if weights == IMAGENET:
        state = encoder.imagenet_weights()
        _fill_encoder(encoder, state, "ImageNet weights")
    elif weights != RANDOM:
        path = Path(weights)
        if path.is_dir():
            path /= "model.safetensors"
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
    if path.suffix not in (".pth", ".pt"):
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
    """Fill an encoder from the tensors of a state that are its own. Raises `UserError` as `fill`.

    Other modules of the state, such as a classifier or a decoder, are ignored.
    """
    names = {name: name.removeprefix("encoder.") for name in state}
    modules = {name for name, _ in encoder.named_children()}
    features = {new: state[old] for old, new in names.items() if new.partition(".")[0] in modules}
    sizes = encoder.config.model_dump(exclude={"name"}).items()
    of_sizes = ", ".join(f"{name} {value}" for name, value in sizes)
    description = f"{encoder.config.name} of {of_sizes}" if sizes else encoder.config.name
    fill(encoder, features, f"{source} does not fit {description}")
