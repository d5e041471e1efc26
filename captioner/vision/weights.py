"""Where the weights of an encoder come from: torchvision's ImageNet weights, or a file."""

from __future__ import annotations

import hashlib
import pickle
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.errors import UserError
from captioner.vision.vgg import VGGConfig, VGGEncoder
from captioner.weight_files import fill, read_tensors

IMAGENET = "imagenet"
"""The name, in place of a path, for torchvision's ImageNet weights."""

RANDOM = "random"
"""The name, in place of a path, for freshly drawn weights, to be trained from scratch."""


def build_encoder(config: VGGConfig, weights: str) -> VGGEncoder:
    """An encoder with its weights, in evaluation mode.

    weights: `imagenet`, `random`, or the path of a `.safetensors` or `.pth` file that holds the
    convolutions under torchvision's names (`features.0.weight`, ...; others are passed over), or of
    a model folder, whose encoder is taken.
    Raises `UserError` when weights cannot be had or do not fit.
    """
    encoder = VGGEncoder(config)
    if weights == IMAGENET:
        state = imagenet_weights(config)
        _fill_encoder(encoder, state, "ImageNet weights")
    elif weights != RANDOM:
        path = Path(weights)
        if path.is_dir():
            path /= "model.safetensors"
        _fill_encoder(encoder, read_weights(path), str(path))
    return encoder.eval()


def imagenet_weights(config: VGGConfig) -> dict[str, Tensor]:
    """Torchvision's ImageNet weights, downloaded on first use and kept.

    Their SHA-256 is held against the digits of it that the file's name ends in, whether they were
    downloaded just now or lay in their place already, put there by hand or by another program.

    Raises `UserError` for a network narrower than the published one, for a file of other content
    and, without a network connection, with the address to fetch and the place to put it.
    """
    if config.width != 1.0:
        raise UserError(
            f"ImageNet weights exist for width 1.0 only, not for {config.name} of width "
            f"{config.width}; give a weights file"
        )
    # Imported here: torchvision takes about as long to import as torch, and only this needs it.
    from torchvision.models import get_model_weights

    entry: Any = get_model_weights(config.name).IMAGENET1K_V1
    place = Path(torch.hub.get_dir()) / "checkpoints" / Path(entry.url).name
    if place.exists():  # Torch checks only what it downloads itself.
        _check_digest(place, config.name, entry.url)
    try:
        state: dict[str, Tensor] = entry.get_state_dict(
            progress=True, check_hash=True, map_location="cpu", weights_only=True
        )
    except (OSError, HTTPException) as error:
        raise UserError(
            f"the ImageNet weights of {config.name} could not be downloaded "
            f"({getattr(error, 'reason', None) or error}); fetch {entry.url} on a machine with "
            f"a network connection and put it at {place}, or give a weights file by path"
        ) from None
    except Exception as error:  # A wrong hash, or whatever a damaged file makes its reader raise.
        delete = f"delete {place} and " if place.exists() else ""
        raise UserError(
            f"the ImageNet weights of {config.name} are damaged ({_reason(error)}); "
            f"{delete}try again"
        ) from None
    return state


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
        raise UserError(f"weights file {path} cannot be read ({_reason(error)})") from None
    if not isinstance(state, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in state.items()
    ):
        raise UserError(f"weights file {path} does not hold named tensors")
    return state


def fingerprint(encoder: VGGEncoder) -> str:
    """A hex digest of the encoder's configuration and of every weight."""
    digest = hashlib.sha256(repr(encoder.config).encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(name.encode())
        # float16 is what a model folder keeps, so a saved and loaded encoder is the same one.
        digest.update(tensor.detach().cpu().half().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _check_digest(place: Path, name: str, url: str) -> None:
    """Raise `UserError` unless a file's SHA-256 begins as its name says: `vgg19-dcbb9e9d.pth`."""
    expected = place.stem.rpartition("-")[2]
    digest = hashlib.sha256()
    try:
        with place.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise UserError(
            f"the ImageNet weights {place} cannot be read ({error.strerror or error})"
        ) from None
    found = digest.hexdigest()[: len(expected)]
    if found != expected:
        raise UserError(
            f"{place} does not hold the ImageNet weights of {name}: its SHA-256 begins with "
            f"{found}, not with {expected}; delete {place} and try again, or put there what "
            f"{url} gives"
        )


def _fill_encoder(encoder: VGGEncoder, state: dict[str, Tensor], source: str) -> None:
    """Fill an encoder from the `features.` tensors of a state. Raises `UserError` as `fill`."""
    names = {name: name.removeprefix("encoder.") for name in state}
    features = {new: state[old] for old, new in names.items() if new.startswith("features.")}
    config = encoder.config
    fill(encoder, features, f"{source} does not fit {config.name} of width {config.width}")


def _reason(error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError):
        # What torch says here is advice to run the code that such a file may hold.
        return "it is damaged, or holds something besides tensors, which is never run"
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
