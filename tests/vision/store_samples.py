"""A store of twenty images whose vectors are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.vision.feature_store import FeatureStore, StoreKey, build_store

KEY = StoreKey("encoder" * 5, "preprocessing" * 5)
SHAPE = (3, 4)
IMAGES = [f"{number}.jpg" for number in range(20)]


def vectors(rows: Sequence[int]) -> Tensor:
    """What the encoder gives for these rows: numbers that float16 holds exactly."""
    offsets = torch.arange(12.0).view(1, *SHAPE) / 16
    return torch.tensor([float(row) for row in rows]).view(-1, 1, 1) + offsets


class Encoder:
    """Encodes rows and keeps a list of them; stops before a given one."""

    def __init__(self, stop_at: int | None = None, error: BaseException | None = None) -> None:
        self.rows: list[int] = []
        self.stop_at, self.error = stop_at, error

    def __call__(self, rows: Sequence[int]) -> Tensor:
        if self.error is not None and self.stop_at in rows:
            raise self.error
        self.rows += rows
        return vectors(rows)


def build(
    folder: Path, encode: Any, images: Sequence[str] = IMAGES, **options: Any
) -> FeatureStore:
    settings = {"batch_size": 2, "sync_every": 6, "rows_per_shard": 8, **options}
    return build_store(folder, images, SHAPE, settings.pop("key", KEY), encode, **settings)
