"""A store of twenty images whose vectors are known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.vision.feature_store import FeatureStore, StoreRecord, StoreWriter

SHAPE = (3, 4)
IMAGES = [f"{number}.jpg" for number in range(20)]
RECORD = StoreRecord(
    encoder={"name": "vgg19", "weights": "a" * 64},
    preprocessing={"size": 32},
    images=IMAGES,
    shape=SHAPE,
)


def vectors(rows: Sequence[int]) -> Tensor:
    """What the encoder gives for these rows: numbers that float16 holds exactly."""
    offsets = torch.arange(12.0).view(1, *SHAPE) / 16
    return torch.tensor([float(row) for row in rows]).view(-1, 1, 1) + offsets


def fill(
    folder: Path,
    record: StoreRecord = RECORD,
    rank: int = 0,
    ranks: int = 1,
    encode: Any = vectors,
) -> list[int]:
    """Write what is missing, two rows at a time; returns the rows written."""
    with StoreWriter(folder, record, rank, ranks) as writer:
        batches = writer.missing(2)
        for rows in batches:
            writer.write(rows, encode(rows))
    return [row for rows in batches for row in rows]


def build(folder: Path) -> FeatureStore:
    fill(folder)
    return FeatureStore(folder, RECORD)
