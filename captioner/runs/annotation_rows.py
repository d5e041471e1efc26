"""Annotation vectors for training and validation: from a feature store or from the photos."""

from __future__ import annotations

import time
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
    extraction_progress,
    seeded_encoder_of,
    source_stores,
    sources_to_store,
    store_folder,
    why_unreadable,
)
from captioner.runs.feature_workers import fill_with_workers
from captioner.vision.augmentation import Augmentation
from captioner.vision.encoder import Encoder
from captioner.vision.feature_store import FeatureStore
from captioner.vision.preprocessing import Preprocessing

_POLL_SECONDS = 0.5


def stored_features(
    recipe: CaptioningRecipe,
    folder: Path,
    encoder: Encoder,
    sources: dict[str, Source],
    rank: int = 0,
    ranks: int = 1,
    local_ranks: int = 1,
) -> dict[str, FeatureStore]:
    """Fill the feature store of each source and open it.

    rank, ranks: of this process, as under `torchrun`. Each writes its own rows and waits for the
        others; rank 0 shows progress.
    local_ranks: processes that share this machine's cores.
    Raises `UserError` as `StoreWriter` does, and for the first unreadable photo if the recipe
    refuses these.
    """
    stores = source_stores(recipe, store_folder(recipe, folder, encoder), encoder, sources)
    with extraction_progress(list(stores.values()) if rank == 0 else []) as report:
        for store in stores.values():
            store.fill(encoder, rank, ranks, local_ranks, report)
        while not all(store.finished for store in stores.values()):  # Others write the rest.
            time.sleep(_POLL_SECONDS)
            report()
    return {name: store.open() for name, store in stores.items()}


def store_recipe_features(
    recipe: CaptioningRecipe,
    device: torch.device | str = "cpu",
    processes: int = 1,
    splits: Sequence[str] = (),
) -> dict[str, FeatureStore]:
    """Fill the stores in the recipe's `features.folder` and open them.

    processes: share the work, each with its own encoder; with "cuda" they share the GPUs evenly.
    splits: more splits to store beside `train` and `validation`.

    Raises `UserError` as `sources_to_store` and `stored_features` do, and if a process dies.
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
    """The rows of the readable photos; prints the number of the others and the first reason."""
    unreadable = [row for row in range(len(source)) if row in store.unreadable]
    if unreadable:
        print(
            f"{len(unreadable):,} photos could not be read and are left out; the first: "
            f"{why_unreadable(source, unreadable[0])}"
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
        """count: photos of the store. mirror: whether as many mirrored ones follow.

        dtype: of the result; float16 needs no conversion. workers: see `load_ahead`.
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
        """The annotation vectors (B, L, D), unchanged."""
        return annotations


class PixelRows:
    """Photos for an encoder, trained or frozen, that reads them in every step."""

    def __init__(
        self,
        source: Source,
        preprocessing: Preprocessing,
        encoder: Encoder | None = None,
        augmentation: Augmentation | None = None,
        precision: str = "float32",
        workers: int = 0,
    ) -> None:
        """encoder, precision: for `encode`. augmentation: of photos read with a generator.

        workers: see `load_ahead`.
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
