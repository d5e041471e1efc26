"""Fills feature stores with the annotation vectors of a recipe's photos."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image
from torch import Tensor, nn

from captioner.data.loading import load_ahead, loading_workers
from captioner.data.source import Source
from captioner.devices import autocast
from captioner.errors import UserError
from captioner.progress import progress_bar
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.read_sources import read_sources
from captioner.schema import to_mapping
from captioner.training import Engine
from captioner.vision.encoder import Encoder
from captioner.vision.encoders import build_encoder
from captioner.vision.feature_store import (
    FeatureStore,
    StoreRecord,
    StoreWriter,
    create_store,
    read_states,
)


def encoder_of(recipe: CaptioningRecipe) -> Encoder:
    """The recipe's encoder with its weights.

    Raises `UserError` as `build_encoder` does, and for weights of another digest than the recipe's.
    """
    chosen = recipe.encoder
    encoder = build_encoder(chosen.config, chosen.weights)
    if chosen.digest is not None and (found := encoder.digest()) != chosen.digest:
        raise UserError(
            f"the {chosen.weights} weights of {chosen.name} have the digest {found}, and "
            f"encoder.digest is {chosen.digest}"
        )
    return encoder.to(memory_format=torch.channels_last)


def sources_to_store(recipe: CaptioningRecipe) -> dict[str, Source]:
    """The photos of `train` and `validation`, whose features are to be stored.

    Raises `UserError` if the recipe stores no features or names no `features.folder`, and as
    `read_sources` does.
    """
    if recipe.photos_in_step:
        reason = "encoder.train true" if recipe.encoder.train else "features.store false"
        raise UserError(f"this config has {reason}, so it stores no features")
    if recipe.features.folder is None:
        raise UserError("this config has no features.folder; give --out or set it")
    train, validation = read_sources(recipe.data)
    return {"train": train, "validation": validation.first(recipe.validation.images)}


@dataclass(frozen=True)
class SourceStore:
    """The feature store of a source; computes its rows."""

    recipe: CaptioningRecipe
    source: Source
    folder: Path
    record: StoreRecord

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
        report: Callable[[], None] = lambda: None,
    ) -> None:
        """Write the missing rows of process `rank` of `ranks`.

        local_ranks: processes that share this machine's cores.
        report: called after each batch.
        Raises `UserError` as `StoreWriter` does, and for a batch with unreadable photos if the
        recipe refuses these.
        """
        if self.finished:  # It may be read-only.
            return
        features = self.recipe.features
        workers = loading_workers(next(encoder.parameters()).device, local_ranks)
        with StoreWriter(self.folder, self.record, rank, ranks) as writer:
            batches = writer.missing(features.batch_size)
            with closing(load_ahead(self._pixels, batches, workers)) as loaded:
                for rows, (pixels, unreadable) in zip(batches, loaded, strict=True):
                    writer.write(rows, encode(encoder, pixels, features.precision), unreadable)
                    report()

    def open(self) -> FeatureStore:
        """The finished store.

        Raises `UserError` as `FeatureStore` does, and for an unreadable photo if the recipe
        refuses these.
        """
        store = FeatureStore(self.folder, self.record)
        if store.unreadable and self.recipe.data.on_problem == "refuse":
            raise UserError(
                f"feature store {self.folder} lacks photos that could not be read, the first: "
                f"{why_unreadable(self.source, min(store.unreadable))}; set data.on_problem to "
                "skip, or delete it"
            )
        return store

    def _pixels(self, rows: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Preprocessed photos (B, 3, size, size), and the rows whose photos are unreadable.

        The photos of rows from N on are mirrored; unreadable photos are black.
        """
        photos, reasons = [], {}
        for row in rows:
            try:
                photo = self.source.open_photo(row % len(self.source))
            except UserError as error:
                reasons[row] = str(error)
                photo = Image.new("RGB", (1, 1))
            photos.append(self.recipe.preprocessing(photo))
        if reasons and self.recipe.data.on_problem == "refuse":
            advice = "--set data.on_problem=skip leaves such photos out"
            raise UserError(f"{'; '.join(dict.fromkeys(reasons.values()))} ({advice})")
        pixels = torch.stack(photos)
        is_mirrored = torch.tensor([row >= len(self.source) for row in rows])  # (B,)
        pixels[is_mirrored] = pixels[is_mirrored].flip(-1)
        return pixels, list(reasons)


def source_stores(
    recipe: CaptioningRecipe, encoder: Encoder, sources: dict[str, Source], run: Path = Path()
) -> dict[str, SourceStore]:
    """The store of each source, in `features.folder` or the run's folder, created if missing.

    Raises `UserError` as `create_store` does.
    """
    origin: dict[str, Any] = {
        "encoder": {
            **to_mapping(encoder.config),
            "weights": encoder.digest(),
            "precision": recipe.features.precision,
        },
        "preprocessing": to_mapping(recipe.preprocessing),
    }
    folder = recipe.features.folder
    if folder is None:  # Named by its origin, so that a store is reused only by its own.
        digest = hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:8]
        name = recipe.encoder.name.replace("/", "-")
        folder = run / "features" / f"{name}-{recipe.preprocessing.size}-{digest}"
    rows, columns = encoder.map_shape(recipe.preprocessing.size, recipe.preprocessing.size)
    stores = {}
    for name, source in sources.items():
        record = StoreRecord(
            **origin,
            images=source.names,
            shape=(rows * columns, encoder.annotation_size),
            mirrored=recipe.features.mirror and name == "train",
        )
        create_store(folder / name, record)
        stores[name] = SourceStore(recipe, source, folder / name, record)
    return stores


def stored_features(
    recipe: CaptioningRecipe,
    encoder: Encoder,
    sources: dict[str, Source],
    run: Path,
    engine: Engine,
) -> dict[str, FeatureStore]:
    """Fill the feature store of each source and open it, as one of the processes of a run.

    Each process writes its own rows and waits for the others; the first shows progress.
    run: the run's folder.
    Raises `UserError` as `SourceStore.fill` and `SourceStore.open` do.
    """
    with engine.fail_together():
        stores = source_stores(recipe, encoder, sources, run)
    # A process that fails leaves at once, and the others at the barrier.
    with extraction_progress(stores.values() if engine.is_main else []) as report:
        for store in stores.values():
            store.fill(encoder, engine.rank, engine.world_size, engine.local_world_size, report)
        engine.barrier()
    with engine.fail_together():
        return {name: store.open() for name, store in stores.items()}


@contextmanager
def extraction_progress(stores: Iterable[SourceStore]) -> Iterator[Callable[[], None]]:
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


@torch.no_grad()
def encode(encoder: nn.Module, pixels: Tensor, precision: str = "float32") -> Tensor:
    """Preprocessed photos (B, 3, size, size) -> annotation vectors (B, L, D).

    precision: of the products, `float32` or `bfloat16`; see `FeaturesConfig`.
    """
    device = next(encoder.parameters()).device
    with autocast(device, getattr(torch, precision)):
        pixels = pixels.to(device, non_blocking=True, memory_format=torch.channels_last)
        vectors: Tensor = encoder(pixels)
    return vectors


def fill_stores(recipe: CaptioningRecipe, engine: Engine) -> dict[str, FeatureStore]:
    """Fill the stores in the recipe's `features.folder` and open them.

    Raises `UserError` as `sources_to_store` and `stored_features` do.
    """
    with engine.fail_together():
        sources = sources_to_store(recipe)
        torch.manual_seed(recipe.training.seed)  # Random weights are those of training.
        encoder = encoder_of(recipe).to(engine.device)
    return stored_features(recipe, encoder, sources, Path(), engine)
