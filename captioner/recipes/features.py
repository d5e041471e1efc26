"""Annotation vectors for training and validation: from a feature store or from the photos."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from captioner.data.source import Source
from captioner.errors import UserError
from captioner.recipes.config import CaptioningRecipe
from captioner.recipes.feature_extraction import (
    encode,
    encoder_of,
    extraction_progress,
    fill_stores,
    photo_loaders,
    seeded_encoder_of,
    source_stores,
    sources_to_store,
    why_unreadable,
)
from captioner.recipes.feature_workers import fill_with_workers
from captioner.vision.augmentation import Augmentation
from captioner.vision.encoder import Encoder
from captioner.vision.feature_store import FeatureStore
from captioner.vision.preprocessing import Preprocessing

__all__ = [
    "EncodedRows",
    "PixelRows",
    "Rows",
    "StoredRows",
    "encoder_of",
    "photo_loaders",
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
        pinned: bool = False,
    ) -> None:
        """Rows of a store whose first `count` are the photos themselves.

        mirror: whether as many more are the same photos mirrored.
        dtype: of the result; float16 needs no conversion.
        pinned: read into pinned host memory; float16 only, and needs a GPU.
        """
        self.store, self.count, self.mirror = store, count, mirror
        self.dtype, self.pinned = dtype, pinned

    def read(
        self, rows: Tensor, generator: torch.Generator | None = None, part: slice = slice(None)
    ) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D); mirrored ones only with a generator.

        part: the rows to read; which rows are mirrored does not depend on it.
        """
        if self.mirror and generator is not None:
            flips = torch.randint(2, rows.shape, generator=generator)  # (B,)
            rows = rows + flips * self.count
        rows = rows[part]
        shape = (len(rows), *self.store.shape)
        memory = torch.empty(shape, dtype=torch.float16, pin_memory=True) if self.pinned else None
        return self.store.read(rows, self.dtype, memory)  # (B, L, D)

    def annotations(self, rows: Tensor) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D)."""
        return self.read(rows)


class PixelRows:
    """The photos themselves, for an encoder that reads them in every step."""

    def __init__(
        self,
        source: Source,
        preprocessing: Preprocessing,
        encoder: Encoder | None = None,
        loaders: ThreadPoolExecutor | None = None,
        augmentation: Augmentation | None = None,
    ) -> None:
        """Photos of a source.

        encoder: needed by `annotations` alone.
        loaders: threads that load a batch's photos, into pinned host memory where there is a GPU.
            None loads them one by one, as on a CPU, where the step uses every core.
        augmentation: of photos that are read with a generator.
        """
        self.augmentation = augmentation or Augmentation()
        self.source, self.preprocessing, self.encoder = source, preprocessing, encoder
        self.loaders = loaders

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
        load = map if self.loaders is None else self.loaders.map
        photos = torch.stack(list(load(self._photo, chosen, seeds)))  # (B, 3, size, size)
        photos = photos.to(memory_format=torch.channels_last)
        pinned = self.loaders is not None and torch.cuda.is_available()
        return photos.pin_memory() if pinned else photos

    def _photo(self, row: int, seed: int | None) -> Tensor:
        """A photo, preprocessed: (3, size, size); augmented if there is a seed."""
        photo = self.source.open_photo(row)
        if seed is not None:
            photo = self.augmentation(photo, torch.Generator().manual_seed(seed))
        return self.preprocessing(photo)

    def annotations(self, rows: Tensor) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D), by the encoder's present weights."""
        assert self.encoder is not None
        device = next(self.encoder.parameters()).device
        found: Tensor = self.encoder(self.read(rows).to(device))
        return found


class EncodedRows:
    """Annotation vectors that a frozen encoder computes from the photos at each read.

    They equal those of a store but for its rounding to float16.
    """

    def __init__(self, photos: PixelRows, encoder: Encoder, precision: str = "float32") -> None:
        """encoder: in evaluation mode. precision: of its products; see `FeaturesConfig`."""
        self.photos, self.encoder, self.precision = photos, encoder, precision

    def read(
        self, rows: Tensor, generator: torch.Generator | None = None, part: slice = slice(None)
    ) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D), without a gradient, on the encoder's device.

        part: the rows to read.
        """
        return encode(self.encoder, self.photos.read(rows, generator, part), self.precision)

    def annotations(self, rows: Tensor) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D)."""
        return self.read(rows)


Rows = StoredRows | PixelRows | EncodedRows
