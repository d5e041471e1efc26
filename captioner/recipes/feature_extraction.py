"""From the photos of a recipe to feature stores, by one process alone or beside others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from captioner.data.prefetch import prefetch
from captioner.data.source import Source
from captioner.errors import UserError
from captioner.recipes.config import CaptioningRecipe
from captioner.recipes.sources import mirrored, read_sources, read_split
from captioner.vision.feature_store import POLL_SECONDS, FeatureStore
from captioner.vision.store_index import StoreKey
from captioner.vision.store_writer import StoreWriter
from captioner.vision.vgg import ANNOTATION_SIZE, VGGEncoder, map_size
from captioner.vision.weights import build_encoder, fingerprint

MIRRORED = " mirrored"
"""Behind a photo's name in a feature store: the same photo, left and right exchanged."""

Report = Callable[[bool], None]
"""Called after each batch, and now and then with True while other processes fill what is left."""

_AHEAD = 2
"""Batches of photos made ready while the GPU works on one."""


def encoder_of(recipe: CaptioningRecipe) -> VGGEncoder:
    """The recipe's encoder, with its weights. Raises `UserError` when they cannot be had."""
    encoder = build_encoder(recipe.encoder.config, recipe.encoder.weights)
    return encoder.to(memory_format=torch.channels_last)


def seeded_encoder_of(recipe: CaptioningRecipe) -> VGGEncoder:
    """As `encoder_of`; weights drawn at random are those that training would draw."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        return encoder_of(recipe)


def sources_to_store(recipe: CaptioningRecipe, splits: Sequence[str] = ()) -> dict[str, Source]:
    """The photos whose features training needs, as `train` and `validation`, and other splits.

    Raises `UserError` when the recipe trains its encoder or stores no features, which leaves
    nothing to do, when it names no `features.folder`, for a split that the data do not have, and as
    `read_split` does.
    """
    if recipe.encoder.train:
        raise UserError("this config trains its encoder, so there is nothing to store")
    if not recipe.features.store:
        raise UserError("this config has features.store false, so there is nothing to store")
    if recipe.features.folder is None:
        raise UserError("this config names no features.folder, so there is nowhere to store them")
    data = recipe.data
    train, validation = read_sources(data)
    sources = {"train": train, "validation": validation.first(recipe.validation.images)}
    for split in splits:
        if data.annotations is None:
            raise UserError(f"generated shapes have no split {split!r}, only train and validation")
        if split in sources or Path(split).name != split:
            raise UserError(f"split {split!r} cannot be stored beside train and validation")
        annotations = data.validation_annotations or data.annotations
        sources[split] = read_split(data.format, annotations, data.images, split, data.on_problem)
    return sources


class SourceStore:
    """The feature store of one source of photos, and how its rows are computed."""

    def __init__(
        self, recipe: CaptioningRecipe, folder: Path, key: StoreKey, source: Source, mirror: bool
    ) -> None:
        """Make the store or join in filling it: N photos and, with `mirror`, N mirrored.

        Raises `UserError` as `StoreWriter` does.
        """
        self.recipe, self.source, self.folder = recipe, source, folder
        names = source.names
        if mirror:
            names = [*names, *(name + MIRRORED for name in names)]
        rows, columns = map_size(recipe.preprocessing.size, recipe.preprocessing.size)
        self.writer = StoreWriter(folder, names, (rows * columns, ANNOTATION_SIZE), key)
        self._unreadable: dict[str, str] = {}
        self._check_readable(self.writer.unreadable)

    def fill(self, encoder: VGGEncoder, report: Report, processes: int = 1) -> None:
        """Fill what no other process holds. Raises `UserError` as `StoreWriter.fill` does.

        Where the recipe refuses unreadable photos, the first is named in one.
        processes: how many share this machine's cores.
        """

        precision = self.recipe.features.precision

        def rows_of(batches: Iterable[Sequence[int]]) -> Iterator[Tensor]:
            if _takes_all_cores(encoder):
                for batch in batches:
                    yield encode(encoder, self._pixels(map(self._photo, batch), batch), precision)
            else:
                with photo_loaders(processes) as pool:
                    ready = (self._pixels(pool.map(self._photo, rows), rows) for rows in batches)
                    with closing(prefetch(ready, _AHEAD)) as prepared:
                        for pixels in prepared:
                            yield encode(encoder, pixels, precision)

        self.writer.fill(
            rows_of,
            self.recipe.features.batch_size,
            unreadable=self._unreadable,
            progress=lambda: report(False),
        )

    def open(self) -> FeatureStore:
        """The finished store. Raises `UserError` as `FeatureStore` does.

        Also where the recipe refuses unreadable photos and a run that skipped them left some out.
        """
        store = FeatureStore(self.folder, self.writer.index.key)
        self._check_readable(store.unreadable)
        return store

    def _check_readable(self, unreadable: dict[str, str]) -> None:
        if unreadable and self.recipe.data.on_problem == "refuse":
            first, reason = next(iter(unreadable.items()))
            raise UserError(
                f"feature store {self.folder} lacks {len(unreadable):,} photos that could not be "
                f"read, the first {first}: {reason}; set data.on_problem to skip, or delete it"
            )

    def _photo(self, row: int) -> Tensor:
        """The photo of a row, preprocessed: (3, size, size); black where it cannot be read."""
        try:
            photo = self.source.open_photo(row % len(self.source))
        except UserError as error:
            if self.recipe.data.on_problem == "refuse":
                raise
            self._unreadable[self.writer.index.images[row]] = str(error)
            photo = Image.new("RGB", (1, 1))
        return self.recipe.preprocessing(photo)

    def _pixels(self, photos: Iterable[Tensor], rows: Sequence[int]) -> Tensor:
        """Preprocessed photos of the rows (B, 3, size, size), those behind the N-th mirrored."""
        pixels = torch.stack(list(photos))
        flips = torch.tensor([row >= len(self.source) for row in rows])  # (B,)
        return torch.where(flips.view(-1, 1, 1, 1), mirrored(pixels), pixels)


def source_stores(
    recipe: CaptioningRecipe, folder: Path, encoder: VGGEncoder, sources: dict[str, Source]
) -> dict[str, SourceStore]:
    """The store of each source, in `folder`, made where there is none; see `SourceStore`."""
    weights = fingerprint(encoder)
    if recipe.features.precision != "float32":  # Rounded otherwise, they are other features.
        weights = f"{weights} {recipe.features.precision}"
    key = StoreKey(weights, recipe.preprocessing.fingerprint())
    return {
        name: SourceStore(
            recipe, folder / name, key, source, recipe.features.mirror and name == "train"
        )
        for name, source in sources.items()
    }


def fill_stores(
    stores: Iterable[SourceStore], encoder: VGGEncoder, report: Report, processes: int = 1
) -> None:
    """Fill stores until all are full, by this process and whatever others do so at once.

    What another process holds is left to it, and taken over where that process ends.
    processes: how many share this machine's cores.
    """
    stores = list(stores)
    while True:
        for store in stores:
            store.fill(encoder, report, processes)
        if all(store.writer.finished for store in stores):
            return
        time.sleep(POLL_SECONDS)
        report(True)


@torch.no_grad()
def encode(encoder: VGGEncoder, pixels: Tensor, precision: str = "float32") -> Tensor:
    """Preprocessed photos (B, 3, size, size) -> annotation vectors (B, L, D).

    precision: of the products, `float32` or `bfloat16`; see `FeaturesConfig`.
    """
    device = next(encoder.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        found: Tensor = encoder(pixels.to(device=device, memory_format=torch.channels_last))
    return found


def _takes_all_cores(encoder: VGGEncoder) -> bool:
    """On a CPU the convolutions have use for every core: a thread beside them slows them down."""
    return next(encoder.parameters()).device.type == "cpu"


@contextmanager
def photo_loaders(processes: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that load photos for a GPU: this process's share of the cores.

    processes: how many share this machine's cores.
    """
    count = max(1, min(16, (os.cpu_count() or 1) // processes))
    before = torch.get_num_threads()
    # Each of them works alone. For the main thread this changes nothing; for threads that are
    # started later it would.
    with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            yield pool
        finally:
            torch.set_num_threads(before)
