"""Where training and validation get their annotation vectors: a feature store, or the photos."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from captioner.data.source import Source
from captioner.errors import UserError
from captioner.progress import progress_bar
from captioner.recipes.config import CaptioningRecipe
from captioner.recipes.feature_extraction import (
    MIRRORED,
    SourceStore,
    encode,
    encoder_of,
    fill_stores,
    photo_loaders,
    seeded_encoder_of,
    source_stores,
    sources_to_store,
)
from captioner.recipes.feature_workers import check_locks, fill_with_workers
from captioner.vision.augmentation import Augmentation
from captioner.vision.feature_store import FeatureStore
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import VGGEncoder

__all__ = [
    "MIRRORED",
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
    encoder: VGGEncoder,
    sources: dict[str, Source],
    processes: int = 1,
    quiet: bool = False,
) -> dict[str, FeatureStore]:
    """The annotation vectors of each source, from the store; computed where they are not there.

    Training photos are stored mirrored as well where the recipe says so. Several processes that
    call this at once, as under `torchrun`, share the work, and each returns when it is done.

    processes: how many of them share this machine's cores. quiet: show no progress.
    Raises `UserError` as `StoreWriter` and its `fill` do, where the recipe refuses unreadable
    photos, naming the first, and for a disk on which several processes could not keep out of each
    other's way.
    """
    base = recipe.features.folder or folder / "features"
    stores = source_stores(recipe, base, encoder, sources)
    if processes > 1:
        for store in stores.values():
            if not store.writer.finished:
                check_locks(store, "fill it first by captioner features --processes 1")
    with _Display(list(stores.values()), quiet) as display:
        fill_stores(stores.values(), encoder, display.look, processes)
    return {name: store.open() for name, store in stores.items()}


def store_recipe_features(
    recipe: CaptioningRecipe,
    device: torch.device | str = "cpu",
    processes: int = 1,
    splits: Sequence[str] = (),
) -> dict[str, FeatureStore]:
    """Fill the stores in the folder that the recipe's `features.folder` names, and open them.

    processes: how many processes of this machine do it together; each has an encoder of its own.
        With a `device` of "cuda" they share the GPUs evenly. Further calls, on this machine or on
        another with the same disk, share the work as well.
    splits: further splits of the data, as the format names them, to store beside `train` and
        `validation`.

    Raises `UserError` when the recipe trains its encoder or stores no features, which leaves
    nothing to do, when it names no folder, when a process ends before its work does, and as
    `stored_features` does.
    """
    if processes < 1:
        raise UserError(f"{processes} processes are not at least 1")
    sources = sources_to_store(recipe, splits)
    assert recipe.features.folder is not None  # `sources_to_store` refuses that.
    encoder = seeded_encoder_of(recipe)
    if processes == 1:
        return stored_features(recipe, recipe.features.folder, encoder.to(device), sources)
    stores = source_stores(recipe, recipe.features.folder, encoder, sources)
    with _Display(list(stores.values())) as display:
        if not all(store.writer.finished for store in stores.values()):
            fill_with_workers(
                recipe,
                splits,
                torch.device(device),
                processes,
                list(stores.values()),
                display.show,
            )
    return {name: store.open() for name, store in stores.items()}


class _Display:
    """One line of progress for all stores; none where nothing is left to do."""

    def __init__(self, stores: Sequence[SourceStore], quiet: bool = False) -> None:
        self.stores = stores
        start = sum(store.writer.done for store in stores)
        total = sum(len(store.writer.index.images) for store in stores)
        shown = start < total and not quiet
        self.progress = progress_bar("features", total, "images", start) if shown else None

    def show(self, done: int, waiting: bool) -> None:
        """Show that so many rows are done."""
        if self.progress is not None:
            note = "waiting for other processes" if waiting else ""
            self.progress.set_postfix_str(note, refresh=False)
            self.progress.update(max(0, done - self.progress.n))

    def look(self, waiting: bool) -> None:
        """Show how many rows are done in the stores."""
        self.show(sum(store.writer.done for store in self.stores), waiting)

    def __enter__(self) -> _Display:
        return self

    def __exit__(self, *error: object) -> None:
        self.look(False)  # What other processes did last.
        if self.progress is not None:
            self.progress.close()


def readable(source: Source, store: FeatureStore) -> list[int]:
    """The rows of the photos that could be read; the others are counted and named in print."""
    rows = [row for row, name in enumerate(source.names) if name not in store.unreadable]
    lost = len(source) - len(rows)
    if lost:
        reason = next(iter(store.unreadable.values()))
        print(f"{lost:,} photos could not be read and are left out; the first: {reason}")
    return rows


class StoredRows:
    """Annotation vectors from a store of N photos, mirrored or not by chance."""

    def __init__(
        self,
        store: FeatureStore,
        count: int,
        mirror: bool,
        dtype: torch.dtype = torch.float32,
        pinned: bool = False,
    ) -> None:
        """Rows of a store whose first `count` are the photos as they are.

        mirror: whether so many more are the same photos mirrored.
        dtype: of what is read; float16 is what is stored.
        pinned: read into memory that a GPU fetches by itself (`to(device, non_blocking=True)`) and
            that torch uses again once it has; with float16 only, and where there is a GPU.
        """
        self.store, self.count, self.mirror = store, count, mirror
        self.dtype, self.pinned = dtype, pinned

    def read(
        self, rows: Tensor, generator: torch.Generator | None = None, part: slice = slice(None)
    ) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D); mirrored ones only with a generator.

        part: which of the rows are read; which are mirrored does not depend on it.
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
    """Photos themselves, for an encoder that reads them in every step, trained along or not."""

    def __init__(
        self,
        source: Source,
        preprocessing: Preprocessing,
        encoder: VGGEncoder | None = None,
        loaders: ThreadPoolExecutor | None = None,
        augmentation: Augmentation | None = None,
    ) -> None:
        """Photos of a source; `encoder` is for those who want their `annotations`.

        loaders: threads that load a batch's photos, for a GPU; into memory that it fetches by
            itself (`to(device, non_blocking=True)`). Without them photos are loaded one by one, as
            on a CPU, where the step has use for every core.
        augmentation: how photos are changed that are read with a generator.
        """
        self.augmentation = augmentation or Augmentation()
        self.source, self.preprocessing, self.encoder = source, preprocessing, encoder
        self.loaders = loaders

    def read(
        self, rows: Tensor, generator: torch.Generator | None = None, part: slice = slice(None)
    ) -> Tensor:
        """Rows (B,) -> preprocessed photos (B, 3, size, size); augmented only with a generator.

        part: which of the rows are read; how a photo is changed does not depend on it.
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
        """A photo, preprocessed: (3, size, size); augmented where there is a seed to draw from."""
        photo = self.source.open_photo(row)
        if seed is not None:
            photo = self.augmentation(photo, torch.Generator().manual_seed(seed))
        return self.preprocessing(photo)

    def annotations(self, rows: Tensor) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D), by the encoder as it is now."""
        assert self.encoder is not None
        device = next(self.encoder.parameters()).device
        found: Tensor = self.encoder(self.read(rows).to(device))
        return found


class EncodedRows:
    """Annotation vectors of photos that a frozen encoder reads whenever they are asked for.

    They are what a store would give, but for its rounding to float16.
    """

    def __init__(self, photos: PixelRows, encoder: VGGEncoder, precision: str = "float32") -> None:
        """Of an encoder in evaluation mode. precision: of its products; see `FeaturesConfig`."""
        self.photos, self.encoder, self.precision = photos, encoder, precision

    def read(
        self, rows: Tensor, generator: torch.Generator | None = None, part: slice = slice(None)
    ) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D), without a gradient, on the encoder's device.

        part: which of the rows are read.
        """
        return encode(self.encoder, self.photos.read(rows, generator, part), self.precision)

    def annotations(self, rows: Tensor) -> Tensor:
        """Rows (B,) -> annotation vectors (B, L, D)."""
        return self.read(rows)


Rows = StoredRows | PixelRows | EncodedRows
