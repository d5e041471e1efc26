"""ImageNet weights published by torchvision."""

from __future__ import annotations

import hashlib
import pickle
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.errors import UserError


def torchvision_weights(name: str) -> dict[str, Tensor]:
    """Torchvision's ImageNet weights, downloaded on first use.

    Checks the file's SHA-256 against the digits in its name, also of a file downloaded before.

    Raises `UserError` for other content, and without a network connection.
    """
    # Imported here: torchvision takes about as long to import as torch.
    from torchvision.models import get_model_weights

    entry: Any = get_model_weights(name).DEFAULT
    place = Path(torch.hub.get_dir()) / "checkpoints" / Path(entry.url).name
    try:
        if place.exists():  # Torch checks only what it downloads itself.
            _check_digest(place)
        state: dict[str, Tensor] = entry.get_state_dict(
            progress=True, check_hash=True, map_location="cpu", weights_only=True
        )
    except (OSError, HTTPException) as error:
        raise UserError(
            f"the ImageNet weights of {name} could not be downloaded "
            f"({getattr(error, 'reason', None) or error}); fetch {entry.url} on a machine with "
            f"a network connection and put it at {place}, or give a weights file by path"
        ) from None
    except Exception as error:  # A wrong digest, or any error of reading a damaged file.
        delete = f"delete {place} and " if place.exists() else ""
        raise UserError(
            f"the ImageNet weights of {name} are damaged ({damage(error)}); {delete}try again"
        ) from None
    return state


def _check_digest(place: Path) -> None:
    """Raise `ValueError` unless a file's SHA-256 begins as its name says: `vgg19-dcbb9e9d.pth`."""
    expected = place.stem.rpartition("-")[2]
    if not hashlib.sha256(place.read_bytes()).hexdigest().startswith(expected):
        raise ValueError(f"their SHA-256 does not begin with {expected}")


def damage(error: Exception) -> str:
    """The reason why a weights file cannot be read."""
    if isinstance(error, pickle.UnpicklingError):
        # Torch's own message advises to run the file's code.
        return "it is damaged, or holds something besides tensors, which is never run"
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
