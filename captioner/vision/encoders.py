"""The families of encoders."""

from __future__ import annotations

from typing import Any

from captioner.errors import UserError
from captioner.vision.encoder import Encoder
from captioner.vision.vgg import VGGEncoder

FAMILIES: dict[str, type[Encoder]] = {
    "vgg": VGGEncoder,
}
"""By what the names of a family begin with."""


def make_encoder(config: Any) -> Encoder:
    """The encoder of a configuration, with fresh weights.

    Raises `UserError` when its name belongs to no family.
    """
    for prefix, family in FAMILIES.items():
        if config.name.startswith(prefix):
            return family(config)
    raise UserError(f"encoder name {config.name!r} begins with none of {', '.join(FAMILIES)}")
