"""Fills feature stores with the annotation vectors of a recipe's photos."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image
from torch import Tensor, nn

from captioner.data.loading import load_ahead, loading_workers
from captioner.data.source import Source
from captioner.errors import UserError
from captioner.progress import progress_bar
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.read_sources import mirrored, read_sources, read_split
from captioner.schema import to_mapping
from captioner.vision.encoder import Encoder
from captioner.vision.feature_store import (
    FeatureStore,
    StoreRecord,
    StoreWriter,
    create_store,
    read_states,
)
from captioner.vision.weights import build_encoder

_LOOKED_AT = 1_000
"""Photos after an unreadable one that are read to report all unreadable ones together."""


def encoder_of(recipe: CaptioningRecipe) -> Encoder:
    """The recipe's encoder with its weights. Raises `UserError` as `build_encoder` does."""
    encoder = build_encoder(recipe.encoder.config, recipe.encoder.weights)
    return encoder.to(memory_format=torch.channels_last)


def seeded_encoder_of(recipe: CaptioningRecipe) -> Encoder:
    """As `encoder_of`, with the random weights that training would draw."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        return encoder_of(recipe)


def sources_to_store(recipe: CaptioningRecipe, splits: Sequence[str] = ()) -> dict[str, Source]:
    """The photos of `train`, `validation` and other splits whose features are to be stored.

    Raises `UserError` if the recipe trains its encoder, stores no features or names no
    `features.folder`, for an unknown split, and as `read_split` does.
    """
    if recipe.encoder.train:
        raise UserError("this config trains its encoder, so it stores no features")
    if not recipe.features.store:
        raise UserError("this config has features.store false, so it stores no features")
    if recipe.features.folder is None:
        raise UserError("this config has no features.folder; set it")
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


@dataclass
class SourceStore:
    """The feature store of a source; computes its rows."""

    recipe: CaptioningRecipe
    source: Source
    folder: Path
    record: StoreRecord
    _unreadable: set[int] = field(default_factory=set)

    @property
    def done(self) -> int:
        """The rows on disk, whichever process wrote them."""
        return int(numpy.count_nonzero(read_states(self.folder, self.record.rows)))

    @property
    def finished(self) -> bool:
        """Whether all rows are on disk."""
        return self.done == self.record.rows

    def fill(
        self,
        encoder: nn.Module,
        rank: int = 0,
        ranks: int = 1,
        local_ranks: int = 1,
        report: Callable[[], None] | None = None,
    ) -> None:
        """Write the missing rows of process `rank` of `ranks`.

        local_ranks: processes that share this machine's cores.
        report: called after each batch.
        Raises `UserError` as `StoreWriter` does, and for the first unreadable photo if the recipe
        refuses these.
        """
        if self.finished:  # It may be read-only.
            return
        with StoreWriter(self.folder, self.record, rank, ranks) as writer:
            batches = writer.missing(self.recipe.features.batch_size)
            with closing(self._encoded(encoder, batches, local_ranks)) as encoded:
                for batch, vectors in zip(batches, encoded, strict=True):
                    writer.write(batch, vectors, self._unreadable)
                    if report is not None:
                        report()

    def open(self) -> FeatureStore:
        """The finished store.

        Raises `UserError` as `FeatureStore` does, and for an unreadable photo if the recipe
        refuses these.
        """
        store = FeatureStore(self.folder, self.record)
        self._check_readable(store.unreadable)
        return store

    def _check_readable(self, unreadable: Collection[int]) -> None:
        if unreadable and self.recipe.data.on_problem == "refuse":
            raise UserError(
                f"feature store {self.folder} lacks photos that could not be read, the first: "
                f"{why_unreadable(self.source, min(unreadable))}; set data.on_problem to skip, "
                "or delete it"
            )

    def _encoded(
        self, encoder: nn.Module, batches: Sequence[Sequence[int]], local_ranks: int
    ) -> Generator[Tensor, None, None]:
        """The annotation vectors (B, L, D) of each batch of rows."""
        workers = loading_workers(next(encoder.parameters()).device, local_ranks)
        for pixels, unreadable in load_ahead(self._pixels, batches, workers):
            self._unreadable.update(unreadable)
            yield encode(encoder, pixels, self.recipe.features.precision)

    def _pixels(self, rows: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Preprocessed photos (B, 3, size, size), and the rows whose photos are unreadable.

        The photos of rows from N on are mirrored; unreadable photos are black.
        """
        photos, unreadable = [], []
        for row in rows:
            try:
                photo = self.source.open_photo(row % len(self.source))
            except UserError:
                if self.recipe.data.on_problem == "refuse":
                    raise _unreadable_error(self.source, row % len(self.source)) from None
                unreadable.append(row)
                photo = Image.new("RGB", (1, 1))
            photos.append(self.recipe.preprocessing(photo))
        pixels = torch.stack(photos)
        flips = torch.tensor([row >= len(self.source) for row in rows])  # (B,)
        return torch.where(flips.view(-1, 1, 1, 1), mirrored(pixels), pixels), unreadable


def store_folder(recipe: CaptioningRecipe, run: Path, encoder: Encoder) -> Path:
    """The recipe's `features.folder`, or by default one in the run's folder.

    The default is named by encoder and preprocessing, so that a store is reused only by its own.
    """
    if recipe.features.folder is not None:
        return recipe.features.folder
    origin = json.dumps(_origin(recipe, encoder), sort_keys=True)
    digest = hashlib.sha256(origin.encode()).hexdigest()[:8]
    name = recipe.encoder.name.replace("/", "-")
    return run / "features" / f"{name}-{recipe.preprocessing.size}-{digest}"


def _origin(recipe: CaptioningRecipe, encoder: Encoder) -> dict[str, dict[str, Any]]:
    """What determines a photo's annotation vectors, by the names of a store's record."""
    return {
        "encoder": {
            **to_mapping(encoder.config),
            "weights": encoder.digest(),
            "precision": recipe.features.precision,
        },
        "preprocessing": to_mapping(recipe.preprocessing),
    }


def source_stores(
    recipe: CaptioningRecipe, folder: Path, encoder: Encoder, sources: dict[str, Source]
) -> dict[str, SourceStore]:
    """The store of each source, in `folder`, created if missing.

    Raises `UserError` as `create_store` does.
    """
    origin = _origin(recipe, encoder)
    rows, columns = encoder.map_shape(recipe.preprocessing.size, recipe.preprocessing.size)
    shape = (rows * columns, encoder.annotation_size)
    stores = {}
    for name, source in sources.items():
        mirror = recipe.features.mirror and name == "train"
        record = StoreRecord(
            encoder=origin["encoder"],
            preprocessing=origin["preprocessing"],
            images=source.names,
            shape=shape,
            mirrored=mirror,
        )
        create_store(folder / name, record)
        stores[name] = SourceStore(recipe, source, folder / name, record)
    return stores


@contextmanager
def extraction_progress(stores: Sequence[SourceStore]) -> Iterator[Callable[[], None]]:
    """Yields a function that shows how many rows of all stores are on disk."""
    start = sum(store.done for store in stores)
    total = sum(store.record.rows for store in stores)
    with progress_bar("features", total, "images", start, shown=start < total) as bar:

        def report() -> None:
            bar.update(sum(store.done for store in stores) - bar.n)

        try:
            yield report
        finally:
            report()


def why_unreadable(source: Source, row: int) -> str:
    """Why the photo of a store's row is unreadable."""
    try:
        source.open_photo(row % len(source))
    except UserError as error:
        return str(error)
    return f"{source.image_ids[row % len(source)]}, which can be read now"


def _unreadable_error(source: Source, first: int) -> UserError:
    """Names the unreadable photos among row `first` and the `_LOOKED_AT` rows after it."""
    sentences = []
    for row in range(first, min(len(source), first + 1 + _LOOKED_AT)):
        try:
            source.open_photo(row)
        except UserError as error:
            sentences.append(str(error))
    advice = "--set data.on_problem=skip leaves such photos out"
    return UserError(f"{'; '.join(sentences)} ({advice})")


@torch.no_grad()
def encode(encoder: nn.Module, pixels: Tensor, precision: str = "float32") -> Tensor:
    """Preprocessed photos (B, 3, size, size) -> annotation vectors (B, L, D).

    precision: of the products, `float32` or `bfloat16`; see `FeaturesConfig`.
    """
    device = next(encoder.parameters()).device
    with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        pixels = pixels.to(device, non_blocking=True, memory_format=torch.channels_last)
        vectors: Tensor = encoder(pixels)
    return vectors
