"""The photos of a run, and their annotation vectors: from a feature store, or encoded in a step."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from captioner.data.example import IN_TRAINING, Example, Problems
from captioner.data.readers import read_splits
from captioner.data.shapes import generate, shapes_examples
from captioner.devices import autocast
from captioner.errors import UserError, counted
from captioner.files import real_path
from captioner.outcomes import loading_workers
from captioner.progress import progress_bar
from captioner.runs.captioning_recipe import CaptioningRecipe, DataConfig
from captioner.schema import to_mapping
from captioner.training.distributed import Engine
from captioner.vision.encoder import Encoder
from captioner.vision.encoders import build_encoder
from captioner.vision.feature_store import FeatureStore, StoreRecord, StoreWriter
from captioner.vision.images import load_image
from captioner.vision.preprocessing import Augmentation, Preprocessing

Key = TypeVar("Key")
Item = TypeVar("Item")


def read_training(data: DataConfig) -> tuple[list[Example], list[Example], list[str]]:
    """The training and the validation photos, and sentences about what was left out or chosen."""
    if data.format == "shapes":
        count = data.shapes.validation
        pictures = generate(count + data.shapes.train, data.shapes.seed, data.shapes.pictures)
        examples = shapes_examples(pictures)
        return examples[count:], examples[:count], []
    assert data.annotations is not None  # Checked by DataConfig.
    files = [(data.annotations, [data.train, data.validation])]
    if (own := data.validation_annotations) is not None:
        files = [(data.annotations, [data.train]), (own, [data.validation])]
    found, sentences = [], []
    for file, splits in files:
        problems = Problems(
            data.on_problem,
            skipping=IN_TRAINING,
            naming_images="--set data.images=...",
            by_captioner=data.captions_by_captioner,
            draws_splits=own is None,
        )
        found += read_splits(data.format, file, data.images, splits, problems)
        sentences += problems.sentences
    train, val = found
    places = {_place(each) for each in val}
    shared = sorted(each.name for each in train if _place(each) in places)
    if shared:
        raise UserError(
            f"the training and the validation split share {counted(len(shared), 'photo')}, "
            f"{shared[0]!r} among them; give the validation photos as another split "
            "(data.validation) or file (data.validation_annotations)"
        )
    return train, val, sentences


def _place(example: Example) -> object:
    """What tells a photo from others that have its name: its file, or its place in a shard."""
    path = example.path
    return real_path(path) if isinstance(path, Path) else path


def encoder_of(recipe: CaptioningRecipe) -> Encoder:
    """The recipe's encoder with its weights, which must have the digest that the recipe names."""
    chosen = recipe.encoder
    encoder = build_encoder(chosen.config, chosen.weights)
    if chosen.digest is not None and (found := encoder.digest()) != chosen.digest:
        reason = f"have the digest {found}, and encoder.digest is {chosen.digest}"
        raise UserError(f"the {chosen.weights} weights of {chosen.name} {reason}")
    return encoder.to(memory_format=torch.channels_last)


def feature_stores(
    recipe: CaptioningRecipe,
    encoder: Encoder,
    splits: Mapping[str, Sequence[Example]],
    engine: Engine,
    run: Path = Path(),
) -> dict[str, FeatureStore]:
    """The finished store of each split; each process computes its share of the missing rows."""
    features, preprocessing = recipe.features, recipe.preprocessing
    origin: dict[str, Any] = {
        "encoder": {
            **encoder.config.model_dump(mode="json", exclude={"rank"}),  # The weights tell it.
            "weights": encoder.digest(),
            "precision": features.precision,
        },
        "preprocessing": to_mapping(preprocessing),
    }
    # By default in the run's folder, named by its origin: a store is reused only by its own.
    digest = hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()[:8]
    own = f"{recipe.encoder.name.replace('/', '-')}-{preprocessing.size}-{digest}"
    folder = features.folder or run / "features" / own
    height, width = encoder.map_shape(preprocessing.size, preprocessing.size)
    records = {
        name: StoreRecord(
            **origin,
            images=[each.name for each in examples],
            shape=(height * width, encoder.annotation_size),
            mirrored=features.mirror and name == "train",
        )
        for name, examples in splits.items()
    }
    encoder = encoder.for_inference(getattr(torch, features.precision))
    workers = loading_workers(engine.device, engine.local_world_size)
    with engine.fail_together():
        for name, record in records.items():
            with StoreWriter(folder / name, record, engine.rank, engine.world_size) as writer:
                changed = writer.forget_changed([*map(_state, splits[name])])
                if changed:  # In one process alone.
                    count = counted(len(changed), "photo")
                    print(f"encoded again: {count} that changed, {changed[0]} the first")
                if not (batches := writer.missing(features.batch_size)):
                    continue
                load = Loader(partial(_load_for_store, recipe, splits[name]), workers)
                total = sum(map(len, batches))
                bar = progress_bar(f"features, {name}", total, "images", 0, engine.is_main)
                with bar as progress, closing(load(batches)) as loaded:
                    for rows, (pixels, unreadable) in zip(batches, loaded, strict=True):
                        pixels = pixels.to(engine.device, non_blocking=True)
                        vectors = encoder.encode(preprocessing.normalise(pixels))
                        writer.write(rows, vectors, unreadable)
                        progress.update(len(rows))
    with engine.fail_together():
        stores = {name: FeatureStore(folder / name, record) for name, record in records.items()}
        for name, store in stores.items():
            if not store.unreadable:
                continue
            photos = {row % len(splits[name]) for row in store.unreadable}
            first = splits[name][min(photos)]
            reason = f"{first.name}, which can be read now"
            try:
                load_image(first.path)
            except UserError as error:
                reason = str(error)
            if recipe.data.on_problem == "refuse":
                reason += "; set data.on_problem to skip, or delete it"
                raise UserError(f"feature store {store.folder} lacks photos: {reason}")
            count = counted(len(photos), "photo")
            print(f"left out {count} that could not be read, the first: {reason}")
    return stores


def _state(example: Example) -> tuple[int, ...]:
    """The size and time of change of a photo's file or shard; none of a picture in memory."""
    path = example.path
    if isinstance(path, Image.Image):
        return ()
    try:
        found = os.stat(path if isinstance(path, Path) else path.shard)
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns


def _load_for_store(
    recipe: CaptioningRecipe, examples: Sequence[Example], rows: Sequence[int]
) -> tuple[Tensor, list[int]]:
    """Photos (B, 3, size, size), uint8, and the rows whose photos are unreadable, and black.

    The photos of rows from N on are mirrored.
    """
    photos, reasons = [], {}
    for row in rows:
        photo = Image.new("RGB", (1, 1))
        try:
            photo = recipe.preprocessing.load(examples[row % len(examples)].path)
        except UserError as error:
            reasons[row] = str(error)
        pixels = recipe.preprocessing.pixels(photo)  # (3, size, size)
        photos.append(pixels[..., ::-1] if row >= len(examples) else pixels)
    if reasons and recipe.data.on_problem == "refuse":
        advice = "--set data.on_problem=skip leaves such photos out"
        raise UserError(f"{'; '.join(dict.fromkeys(reasons.values()))} ({advice})")
    return torch.from_numpy(numpy.stack(photos)), list(reasons)


def extract_features(
    recipe: CaptioningRecipe, engine: Engine, encoder: Encoder | None = None
) -> dict[str, FeatureStore]:
    """Fill the stores in `features.folder`; prints what is left out and how many images are in.

    encoder: in place of the recipe's.
    """
    with engine.fail_together():
        if recipe.photos_in_step or recipe.features.folder is None:
            raise UserError(
                "there is no folder for features: give --out, or a config with features.folder, "
                "whose features.store is true and encoder.train false"
            )
        train, validation, problems = read_training(recipe.data)
        print("".join(f"{sentence}\n" for sentence in problems), end="")
        torch.manual_seed(recipe.training.seed)  # As in training.
        encoder = (encoder or encoder_of(recipe)).to(engine.device)
    splits = {"train": train, "validation": validation[: recipe.validation.images or None]}
    stores = feature_stores(recipe, encoder, splits, engine)
    for name, store in stores.items():
        count = store.record.rows - len(store.unreadable)
        print(f"{name}: {counted(count, 'image')} in {store.folder}")
    return stores


class Loader(Generic[Key, Item]):
    """Loads items ahead, in processes that wait for the next epoch: forked once, not every epoch.

    load: depends on the key alone, since it runs in any process.
    workers: processes that load an item ahead each, into pinned memory if there is a GPU; 0, and on
        Windows, which cannot fork: load in this process. Eight with 32 photos of 224 pixels each
        share 39 MB, of the 64 MB that Docker gives.
    """

    def __init__(self, load: Callable[[Key], Item], workers: int = 0) -> None:
        workers = workers if hasattr(os, "fork") else 0
        self._keys: list[Key] = []
        self._loader = DataLoader(
            _Items(load),
            batch_size=None,
            sampler=self._keys,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
            prefetch_factor=1 if workers else None,
            persistent_workers=workers > 0,
            pin_memory=workers > 0 and torch.cuda.is_available(),
            generator=torch.Generator(),  # The default is the global one, dropout's.
        )

    def __call__(self, keys: Iterable[Key]) -> Generator[Item, None, None]:
        """The items of the keys, in order; one call at a time."""
        self._keys[:] = keys
        for item in self._loader:
            if isinstance(item, UserError):
                raise item
            yield item


class _Items(Dataset[Any]):
    def __init__(self, load: Callable[[Any], Any]) -> None:
        self._load = load

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._load(key)
        except UserError as error:  # Raised here, it would carry the worker's traceback.
            return error


class Rows:
    """Photos or their annotation vectors, by row; `workers` processes read ahead (see `Loader`)."""

    workers: int
    read: Callable[..., tuple[Tensor, Tensor | None]]

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

    def read(
        self, rows: Tensor, part: Any = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, None]:
        """A part of the rows (B,), slice or indices -> annotation vectors (B, L, D), and None.

        generator: mirrors rows at random; which ones does not depend on the part.
        """
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

    def read(
        self, rows: Tensor, part: Any = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """A part of the rows (B,) -> photos (P, 3, size, size), uint8, each read once.

        Also the photo (B,) of each row; None where every row has its own.
        generator: augments photos; how does not depend on the others.
        """
        chosen, photos = torch.unique(rows[part], return_inverse=True)  # (P,), (B,)
        if len(chosen) == len(photos):
            chosen, photos = rows[part], None
        pixels: list[numpy.ndarray[Any, Any]] = []
        is_changed = generator is not None and self.augmentation != Augmentation()
        seed = int(torch.randint(2**62, (), generator=generator)) if is_changed else 0
        for row in chosen.tolist():
            photo = self.preprocessing.load(self.examples[row].path)
            if is_changed:
                photo = self.augmentation(photo, torch.Generator().manual_seed(seed ^ row))
            pixels.append(self.preprocessing.pixels(photo))
        stacked = torch.from_numpy(numpy.stack(pixels))  # (P, 3, size, size)
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
