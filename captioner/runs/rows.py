"""The photos of a data set by row: as stored annotation vectors, or as pixels for the encoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from captioner.data.example import Example
from captioner.devices import autocast
from captioner.runs.loader import Loader
from captioner.vision.encoder import Encoder
from captioner.vision.feature_store import FeatureStore
from captioner.vision.preprocessing import Augmentation, Preprocessing


class Rows(ABC):
    """Photos or their annotation vectors, by row; `workers` processes read ahead (see `Loader`)."""

    workers: int

    @property
    @abstractmethod
    def readable(self) -> list[int]:
        """The rows whose photos could be read."""

    @abstractmethod
    def read(
        self, rows: Tensor, part: Any = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The sources of a part of the rows (B,), slice or indices, for a batch's `source`.

        Also the index (B,) into them of each row; None where every row has its own.
        generator: changes the photos at random, independently of the part.
        """

    def encode(self, source: Tensor, in_loss: bool = False) -> Tensor:
        """The annotation vectors (B, L, D), as they were read."""
        return source

    @cached_property
    def _loader(self) -> Loader[Tensor, tuple[Tensor, Tensor | None]]:
        return Loader(self.read, self.workers)

    def annotations(self, batches: Sequence[Sequence[int]]) -> Iterator[Tensor]:
        """The annotation vectors (B, L, D) of each batch of distinct rows, not augmented."""
        for source, _ in self._loader(torch.tensor(batch) for batch in batches):
            yield self.encode(source)


@dataclass(frozen=True)
class StoredRows(Rows):
    """Annotation vectors of a feature store as `dtype`, at random those of mirrored photos."""

    store: FeatureStore
    dtype: torch.dtype = torch.float32
    workers: int = 0

    @property
    def readable(self) -> list[int]:
        """The rows in the store, but for mirrored ones."""
        unreadable = self.store.unreadable
        return [row for row in range(len(self.store.record.images)) if row not in unreadable]

    def read(
        self, rows: Tensor, part: Any = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, None]:
        """Annotation vectors (B, L, D), and None. generator: mirrors photos."""
        if self.store.record.mirrored and generator is not None:
            flips = torch.randint(2, rows.shape, generator=generator)  # (B,)
            rows = rows + flips * len(self.store.record.images)
        return self.store.read(rows[part], self.dtype), None  # (B, L, D)


@dataclass(frozen=True)
class PixelRows(Rows):
    """Photos for an encoder that reads them in every step.

    precision: of the encoder's products. augmentation: of photos read with a generator.
    """

    examples: Sequence[Example]
    preprocessing: Preprocessing
    encoder: Encoder
    augmentation: Augmentation = field(default_factory=Augmentation)
    precision: str = "float32"
    workers: int = 0

    @property
    def readable(self) -> list[int]:
        """All rows: an unreadable photo ends the run."""
        return list(range(len(self.examples)))

    def read(
        self, rows: Tensor, part: Any = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Photos (P, 3, size, size), uint8, each read once. generator: augments them."""
        chosen, photos = torch.unique(rows[part], return_inverse=True)  # (P,), (B,)
        if len(chosen) == len(photos):
            chosen, photos = rows[part], None
        pixels: list[np.ndarray[Any, Any]] = []
        is_changed = generator is not None and self.augmentation != Augmentation()
        seed = int(torch.randint(2**62, (), generator=generator)) if is_changed else 0
        for row in chosen.tolist():
            photo = self.preprocessing.load(self.examples[row].path)
            if is_changed:
                photo = self.augmentation(photo, torch.Generator().manual_seed(seed ^ row))
            pixels.append(self.preprocessing.pixels(photo))
        stacked = torch.from_numpy(np.stack(pixels))  # (P, 3, size, size)
        return stacked.to(memory_format=torch.channels_last), photos

    def encode(self, source: Tensor, in_loss: bool = False) -> Tensor:
        """Photos (B, 3, size, size), uint8 -> annotation vectors (B, L, D), without a gradient.

        in_loss: normalised photos instead, float32, on the encoder's device.
        """
        device = next(self.encoder.parameters()).device
        normalised: Tensor = self.preprocessing.normalise(source.to(device, non_blocking=True))
        if in_loss:
            return normalised
        with autocast(device, getattr(torch, self.precision)):
            return self.encoder.encode(normalised)
