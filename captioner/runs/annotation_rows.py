"""Annotation vectors for training and validation: from a feature store or from the photos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from captioner.data.loading import load_ahead
from captioner.data.source import Source
from captioner.runs.feature_extraction import encode, why_unreadable
from captioner.vision.encoder import Encoder
from captioner.vision.feature_store import FeatureStore
from captioner.vision.preprocessing import Augmentation, Preprocessing


def readable(source: Source, store: FeatureStore) -> list[int]:
    """The rows of the readable photos; prints the number of the others and the first reason."""
    unreadable = [row for row in range(len(source)) if row in store.unreadable]
    if unreadable:
        print(
            f"{len(unreadable):,} photos could not be read and are left out; the first: "
            f"{why_unreadable(source, unreadable[0])}"
        )
    return [row for row in range(len(source)) if row not in store.unreadable]


@dataclass(frozen=True)
class StoredRows:
    """Annotation vectors from a feature store, mirrored at random if it has mirrored photos.

    dtype: of the result; float16 needs no conversion. workers: see `load_ahead`.
    """

    store: FeatureStore
    dtype: torch.dtype = torch.float32
    workers: int = 0

    def read(
        self, rows: Tensor, generator: torch.Generator | None = None, part: slice = slice(None)
    ) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D); mirrored ones only with a generator.

        part: the rows to read; which rows are mirrored does not depend on it.
        """
        if self.store.record.mirrored and generator is not None:
            flips = torch.randint(2, rows.shape, generator=generator)  # (B,)
            rows = rows + flips * len(self.store.record.images)
        return self.store.read(rows[part], self.dtype)  # (B, L, D)

    def encode(self, annotations: Tensor) -> Tensor:
        """The annotation vectors (B, L, D), unchanged."""
        return annotations


@dataclass(frozen=True)
class PixelRows:
    """Photos for an encoder, trained or frozen, that reads them in every step.

    encoder, precision: for `encode`. augmentation: of photos read with a generator. workers: see
        `load_ahead`.
    """

    source: Source
    preprocessing: Preprocessing
    encoder: Encoder | None = None
    augmentation: Augmentation = field(default_factory=Augmentation)
    precision: str = "float32"
    workers: int = 0

    def read(self, rows: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Rows (B,) -> preprocessed photos (B, 3, size, size); augmented only with a generator.

        How a photo is augmented does not depend on the others.
        """
        chosen = rows.tolist()
        seeds: list[int | None] = [None] * len(chosen)
        if generator is not None and self.augmentation.changes:
            first = int(torch.randint(2**62, (), generator=generator))
            seeds = [first ^ row for row in chosen]
        photos = torch.stack(list(map(self._photo, chosen, seeds)))  # (B, 3, size, size)
        return photos.to(memory_format=torch.channels_last)

    def _photo(self, row: int, seed: int | None) -> Tensor:
        """A preprocessed photo (3, size, size); augmented if there is a seed."""
        photo = self.source.open_photo(row)
        if seed is not None:
            photo = self.augmentation(photo, torch.Generator().manual_seed(seed))
        return self.preprocessing(photo)

    def encode(self, pixels: Tensor) -> Tensor:
        """Photos (B, 3, size, size) -> annotation vectors (B, L, D), without a gradient."""
        assert self.encoder is not None
        return encode(self.encoder, pixels, self.precision)


Rows = StoredRows | PixelRows


def annotation_batches(rows: Rows, batches: Sequence[Sequence[int]]) -> Iterator[Tensor]:
    """The annotation vectors (B, L, D) of each batch of rows, without augmentation."""
    for loaded in load_ahead(rows.read, [torch.tensor(batch) for batch in batches], rows.workers):
        yield rows.encode(loaded)
