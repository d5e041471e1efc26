"""Annotation vectors for training and validation: from a feature store or from the photos."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image
from torch import Tensor

from captioner.data.batches import Loader
from captioner.data.example import Example
from captioner.devices import autocast
from captioner.errors import UserError, counted
from captioner.outcomes import loading_workers
from captioner.progress import progress_bar
from captioner.runs.captioning_recipe import CaptioningRecipe, read_training
from captioner.schema import to_mapping
from captioner.training.distributed import Engine
from captioner.vision.encoder import Encoder
from captioner.vision.encoders import build_encoder
from captioner.vision.feature_store import (
    FeatureStore,
    StoreRecord,
    StoreWriter,
    create_store,
    read_states,
)
from captioner.vision.images import load_image
from captioner.vision.preprocessing import Augmentation, Preprocessing


def encoder_of(recipe: CaptioningRecipe) -> Encoder:
    """The recipe's encoder with its weights, which must have the digest that the recipe names."""
    chosen = recipe.encoder
    encoder = build_encoder(chosen.config, chosen.weights)
    if chosen.digest is not None and (found := encoder.digest()) != chosen.digest:
        raise UserError(
            f"the {chosen.weights} weights of {chosen.name} have the digest {found}, and "
            f"encoder.digest is {chosen.digest}"
        )
    return encoder.to(memory_format=torch.channels_last)


@dataclass(frozen=True)
class ExampleStore:
    """The feature store of a split; computes its rows."""

    recipe: CaptioningRecipe
    examples: Sequence[Example]
    folder: Path
    record: StoreRecord

    def fill(self, encoder: Encoder, engine: Engine) -> None:
        """Write the missing rows of this process; the first process shows its progress.

        Raises `UserError` for a batch with unreadable photos if the recipe refuses these.
        """
        if read_states(self.folder, self.record.rows).all():  # It may be read-only.
            return
        features = self.recipe.features
        encoder = encoder.for_inference(getattr(torch, features.precision))
        workers = loading_workers(engine.device, engine.local_world_size)
        with StoreWriter(self.folder, self.record, engine.rank, engine.world_size) as writer:
            batches = writer.missing(features.batch_size)
            what, count = f"features, {self.folder.name}", sum(map(len, batches))
            with (
                progress_bar(what, count, "images", shown=engine.is_main) as progress,
                closing(Loader(self._pixels, workers)(batches)) as loaded,
            ):
                for rows, (pixels, unreadable) in zip(batches, loaded, strict=True):
                    pixels = pixels.to(engine.device, non_blocking=True)
                    normalised = self.recipe.preprocessing.normalise(pixels)
                    writer.write(rows, encoder.encode(normalised), unreadable)
                    progress.update(len(rows))

    def open(self) -> FeatureStore:
        """The finished store.

        Raises `UserError` for an unreadable photo if the recipe refuses these.
        """
        store = FeatureStore(self.folder, self.record)
        if store.unreadable and self.recipe.data.on_problem == "refuse":
            raise UserError(
                f"feature store {self.folder} lacks photos that could not be read, the first: "
                f"{_why_unreadable(self.examples, min(store.unreadable))}; set data.on_problem to "
                "skip, or delete it"
            )
        return store

    def _pixels(self, rows: Sequence[int]) -> tuple[Tensor, list[int]]:
        """Photos (B, 3, size, size), uint8, and the rows whose photos are unreadable.

        The photos of rows from N on are mirrored; unreadable photos are black.
        """
        photos, reasons = [], {}
        preprocessing = self.recipe.preprocessing
        for row in rows:
            path = self.examples[row % len(self.examples)].path
            try:
                photos.append(preprocessing.pixels(preprocessing.load(path)))
            except UserError as error:
                reasons[row] = str(error)
                photos.append(preprocessing.pixels(Image.new("RGB", (1, 1))))
        if reasons and self.recipe.data.on_problem == "refuse":
            advice = "--set data.on_problem=skip leaves such photos out"
            raise UserError(f"{'; '.join(dict.fromkeys(reasons.values()))} ({advice})")
        pixels = torch.from_numpy(numpy.stack(photos))  # (B, 3, size, size)
        is_mirrored = torch.tensor([row >= len(self.examples) for row in rows])  # (B,)
        pixels[is_mirrored] = pixels[is_mirrored].flip(-1)
        return pixels, list(reasons)


def example_stores(
    recipe: CaptioningRecipe, encoder: Encoder, splits: dict[str, list[Example]], run: Path = Path()
) -> dict[str, ExampleStore]:
    """The store of each split, in `features.folder` or the run's folder, created if missing."""
    origin: dict[str, Any] = {
        "encoder": {
            **encoder.config.model_dump(mode="json", exclude={"rank"}),  # The weights tell it.
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
    for name, examples in splits.items():
        record = StoreRecord(
            **origin,
            images=[each.name for each in examples],
            shape=(rows * columns, encoder.annotation_size),
            mirrored=recipe.features.mirror and name == "train",
        )
        create_store(folder / name, record)
        stores[name] = ExampleStore(recipe, examples, folder / name, record)
    return stores


def fill_stores(
    stores: Mapping[str, ExampleStore], encoder: Encoder, engine: Engine
) -> dict[str, FeatureStore]:
    """Fill stores and open them, as one of the processes of a run."""
    with engine.fail_together():
        for store in stores.values():
            store.fill(encoder, engine)
    with engine.fail_together():
        return {name: store.open() for name, store in stores.items()}


def extract_features(recipe: CaptioningRecipe, engine: Engine) -> dict[str, FeatureStore]:
    """Fill the stores in the recipe's `features.folder` and open them.

    Prints what was left out, and how many images each store has.
    """
    with engine.fail_together():
        splits = examples_to_store(recipe)
        torch.manual_seed(recipe.training.seed)  # Random weights are those of training.
        encoder = encoder_of(recipe).to(engine.device)
        stores = example_stores(recipe, encoder, splits)
    opened = fill_stores(stores, encoder, engine)
    for name, store in opened.items():
        usable = len(store) - len(store.unreadable)
        readable(splits[name], store)
        print(f"{name}: {counted(usable, 'image')} in {store.folder}")
    return opened


def examples_to_store(recipe: CaptioningRecipe) -> dict[str, list[Example]]:
    """The photos of `train` and `validation`, whose features are to be stored.

    Prints what was left out of the data.

    Raises `UserError` if the recipe stores no features or names no `features.folder`.
    """
    if recipe.photos_in_step:
        reason = "encoder.train true" if recipe.encoder.train else "features.store false"
        raise UserError(f"this config has {reason}, so it stores no features")
    if recipe.features.folder is None:
        raise UserError("this config has no features.folder; give --out or set it")
    train, validation, problems = read_training(recipe.data)
    for sentence in problems:
        print(sentence)
    return {"train": train, "validation": validation[: recipe.validation.images or None]}


def readable(examples: Sequence[Example], store: FeatureStore) -> list[int]:
    """The rows of the readable photos; prints the number of the others and the first reason."""
    unreadable = [row for row in range(len(examples)) if row in store.unreadable]
    if unreadable:
        print(
            f"left out {counted(len(unreadable), 'photo')} that could not be read, the first: "
            f"{_why_unreadable(examples, unreadable[0])}"
        )
    return [row for row in range(len(examples)) if row not in store.unreadable]


def _why_unreadable(examples: Sequence[Example], row: int) -> str:
    example = examples[row % len(examples)]
    try:
        load_image(example.path)
    except UserError as error:
        return str(error)
    return f"{example.name}, which can be read now"


@dataclass(frozen=True)
class StoredRows:
    """Annotation vectors from a feature store, mirrored at random if it has mirrored photos.

    dtype: of the result; float16 needs no conversion. workers: see `Loader`.
    """

    store: FeatureStore
    dtype: torch.dtype = torch.float32
    workers: int = 0

    def read(
        self, rows: Tensor, part: slice = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, None]:
        """A part of the rows (B,) -> annotation vectors (B, L, D), and None: a photo a row.

        generator: mirrors rows at random; which ones does not depend on the part.
        """
        if self.store.record.mirrored and generator is not None:
            flips = torch.randint(2, rows.shape, generator=generator)  # (B,)
            rows = rows + flips * len(self.store.record.images)
        return self.store.read(rows[part], self.dtype), None  # (B, L, D)

    @cached_property
    def loader(self) -> Loader[Tensor, tuple[Tensor, None]]:
        """Reads rows ahead."""
        return Loader(self.read, self.workers)

    def encode(self, annotations: Tensor) -> Tensor:
        """The annotation vectors (B, L, D), unchanged."""
        return annotations


@dataclass(frozen=True)
class PixelRows:
    """Photos for an encoder, trained or frozen, that reads them in every step.

    encoder, precision: for `encode`, of products. augmentation: of photos read with a generator.
    workers: see `Loader`.
    """

    examples: Sequence[Example]
    preprocessing: Preprocessing
    encoder: Encoder | None = None
    augmentation: Augmentation = field(default_factory=Augmentation)
    precision: str = "float32"
    workers: int = 0

    def read(
        self, rows: Tensor, part: slice = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """A part of the rows (B,) -> photos (P, 3, size, size), uint8, each read once.

        Also the photo (B,) of each row; None where every row has its own.
        generator: augments photos; how does not depend on the others.
        """
        chosen, photos = torch.unique(rows[part], return_inverse=True)  # (P,), (B,)
        if len(chosen) == len(photos):
            chosen, photos = rows[part], None
        seed: int | None = None
        if generator is not None and self.augmentation.changes:
            seed = int(torch.randint(2**62, (), generator=generator))
        pixels = numpy.stack([self._photo(row, seed) for row in chosen.tolist()])
        return torch.from_numpy(pixels).to(memory_format=torch.channels_last), photos

    def _photo(self, row: int, seed: int | None) -> numpy.ndarray[Any, Any]:
        """`Preprocessing.pixels` of a photo; augmented if there is a seed."""
        photo = self.preprocessing.load(self.examples[row].path)
        if seed is not None:
            photo = self.augmentation(photo, torch.Generator().manual_seed(seed ^ row))
        return self.preprocessing.pixels(photo)

    @cached_property
    def loader(self) -> Loader[Tensor, tuple[Tensor, Tensor | None]]:
        """Reads rows ahead."""
        return Loader(self.read, self.workers)

    def normalise(self, pixels: Tensor) -> Tensor:
        """Photos (B, 3, size, size), uint8 -> float32, on the encoder's device."""
        assert self.encoder is not None
        device = next(self.encoder.parameters()).device
        normalised: Tensor = self.preprocessing.normalise(pixels.to(device, non_blocking=True))
        return normalised

    def encode(self, pixels: Tensor) -> Tensor:
        """Photos (B, 3, size, size), uint8 -> annotation vectors (B, L, D), without a gradient."""
        assert self.encoder is not None
        normalised = self.normalise(pixels)
        with autocast(normalised.device, getattr(torch, self.precision)):
            return self.encoder.encode(normalised)


Rows = StoredRows | PixelRows


def annotation_batches(rows: Rows, batches: Sequence[Sequence[int]]) -> Iterator[Tensor]:
    """The annotation vectors (B, L, D) of each batch of distinct rows, without augmentation."""
    for source, _ in rows.loader(torch.tensor(batch) for batch in batches):
        yield rows.encode(source)
