"""Annotation vectors for training and validation: from a feature store or from the photos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from captioner.data.loading import load_ahead
from captioner.data.source import Source
from captioner.errors import UserError
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.feature_extraction import (
    encode,
    encoder_of,
    extraction_progress,
    fill_stores,
    seeded_encoder_of,
    source_stores,
    sources_to_store,
    why_unreadable,
)
from captioner.runs.feature_workers import fill_with_workers
from captioner.vision.augmentation import Augmentation
from captioner.vision.encoder import Encoder
from captioner.vision.feature_store import FeatureStore
from captioner.vision.preprocessing import Preprocessing

__all__ = [
    "PixelRows",
    "Rows",
    "StoredRows",
    "annotation_batches",
    "encoder_of",
    "readable",
    "store_recipe_features",
    "stored_features",
]


def stored_features(
    recipe: CaptioningRecipe,
    folder: Path,
    encoder: Encoder,
    sources: dict[str, Source],
    rank: int = 0,
    ranks: int = 1,
    local_ranks: int = 1,
) -> dict[str, FeatureStore]:
    """Open the feature store of each source, filled where rows are missing.

    Training photos are stored mirrored as well where the recipe says so.

    rank, ranks: this process and how many, as under `torchrun`, call this at once. Each writes its
        own rows and returns when all rows are done; the first one shows progress.
    local_ranks: how many of them share this machine's cores.
    Raises `UserError` as `StoreWriter` does, and, where the recipe refuses unreadable photos, for
    the first of them.
    """
    base = recipe.features.folder or folder / "features"
    stores = source_stores(recipe, base, encoder, sources)
    with extraction_progress(list(stores.values()) if rank == 0 else []) as report:
        fill_stores(list(stores.values()), encoder, rank, ranks, local_ranks, report)
    return {name: store.open() for name, store in stores.items()}


def store_recipe_features(
    recipe: CaptioningRecipe,
    device: torch.device | str = "cpu",
    processes: int = 1,
    splits: Sequence[str] = (),
) -> dict[str, FeatureStore]:
    """Fill the stores in the folder that the recipe's `features.folder` names, and open them.

    processes: how many processes of this machine share the work; each has an encoder of its own.
        With the device "cuda" they share the GPUs evenly.
    splits: further splits of the data, as the format names them, to store beside `train` and
        `validation`.

    Raises `UserError` when the recipe trains its encoder, stores no features or names no folder,
    when a process dies, and as `stored_features` does.
    """
    if processes < 1:
        raise UserError(f"{processes} processes are not at least 1")
    sources = sources_to_store(recipe, splits)
    assert recipe.features.folder is not None  # `sources_to_store` refuses that.
    encoder = seeded_encoder_of(recipe)
    if processes == 1:
        return stored_features(recipe, recipe.features.folder, encoder.to(device), sources)
    stores = source_stores(recipe, recipe.features.folder, encoder, sources)
    with extraction_progress(list(stores.values())) as report:
        if not all(store.finished for store in stores.values()):
            fill_with_workers(recipe, splits, torch.device(device), processes, report)
    return {name: store.open() for name, store in stores.items()}


def readable(source: Source, store: FeatureStore) -> list[int]:
    """The rows of the photos that could be read; prints how many could not, and why the first."""
    lost = [row for row in range(len(source)) if row in store.unreadable]
    if lost:
        print(
            f"{len(lost):,} photos could not be read and are left out; the first: "
            f"{why_unreadable(source, lost[0])}"
        )
    return [row for row in range(len(source)) if row not in store.unreadable]


class StoredRows:
    """Annotation vectors from a store of N photos, mirrored at random."""

    def __init__(
        self,
        store: FeatureStore,
        count: int,
        mirror: bool,
        dtype: torch.dtype = torch.float32,
        workers: int = 0,
    ) -> None:
        """Rows of a store whose first `count` are the photos themselves.

        mirror: whether as many more are the same photos mirrored.
        dtype: of the result; float16 needs no conversion.
        workers: processes that read ahead; see `load_ahead`.
        """
        self.store, self.count, self.mirror = store, count, mirror
        self.dtype, self.workers = dtype, workers

    def read(
        self, rows: Tensor, generator: torch.Generator | None = None, part: slice = slice(None)
    ) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D); mirrored ones only with a generator.

        part: the rows to read; which rows are mirrored does not depend on it.
        """
        if self.mirror and generator is not None:
            flips = torch.randint(2, rows.shape, generator=generator)  # (B,)
            rows = rows + flips * self.count
        return self.store.read(rows[part], self.dtype)  # (B, L, D)

    def encode(self, annotations: Tensor) -> Tensor:
        """Annotation vectors (B, L, D) as they are."""
        return annotations


class PixelRows:
    """Photos, for an encoder that reads them in every step, trained or frozen.

    The annotation vectors of a frozen encoder are those of a store, not rounded to float16.
    """

    def __init__(
        self,
        source: Source,
        preprocessing: Preprocessing,
        encoder: Encoder | None = None,
        augmentation: Augmentation | None = None,
        precision: str = "float32",
        workers: int = 0,
    ) -> None:
        """Photos of a source.

        encoder, precision: for `encode`. augmentation: of photos that are read with a generator.
        workers: processes that read ahead; see `load_ahead`.
        """
        self.augmentation = augmentation or Augmentation()
        self.source, self.preprocessing, self.encoder = source, preprocessing, encoder
        self.precision, self.workers = precision, workers

    def read(
        self, rows: Tensor, generator: torch.Generator | None = None, part: slice = slice(None)
    ) -> Tensor:
        """Rows (B,) -> preprocessed photos (B, 3, size, size); augmented only with a generator.

        part: the rows to read; how a photo is augmented does not depend on it.
        """
        chosen = rows[part].tolist()
        seeds: list[int | None] = [None] * len(chosen)
        if generator is not None and self.augmentation.changes:
            first = int(torch.randint(2**62, (), generator=generator))
            seeds = [first ^ row for row in chosen]
        photos = torch.stack(list(map(self._photo, chosen, seeds)))  # (B, 3, size, size)
        return photos.to(memory_format=torch.channels_last)

    def _photo(self, row: int, seed: int | None) -> Tensor:
        """A photo, preprocessed: (3, size, size); augmented if there is a seed."""
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
