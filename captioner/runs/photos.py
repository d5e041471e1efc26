"""The photos of a run: read with their captions, then by row, as vectors or as pixels."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from captioner.data.example import IN_TRAINING, Example, Problems
from captioner.data.readers import read_splits
from captioner.data.shapes import generate, shapes_examples
from captioner.devices import autocast
from captioner.errors import UserError, counted
from captioner.files import existing_path, real_path
from captioner.runs.captioning_recipe import DataConfig
from captioner.schema import Section
from captioner.training.batches import Loader
from captioner.vision.encoder import Encoder
from captioner.vision.feature_store import FeatureStore
from captioner.vision.preprocessing import Augmentation, Preprocessing


class CaptionData(NamedTuple):
    """A run's photos with captions, and sentences about what was left out or chosen."""

    train: list[Example]
    validation: list[Example]
    problems: list[str]

    @property
    def captions(self) -> list[list[str]]:
        """The words of all training captions."""
        return [words for example in self.train for words in example.words]

    def counts(self, longest: int) -> list[str]:
        """A sentence for each split, and one on the captions that are cut to `longest` words."""
        sentences = []
        for name, examples in (("training", self.train), ("validation", self.validation)):
            count = counted(sum(len(example.captions) for example in examples), "caption")
            sentences.append(f"{name}: {counted(len(examples), 'photo')}, {count}")
        if too_long := sum(len(words) > longest for words in self.captions):
            sentences.append(f"{counted(too_long, 'caption')} cut to {longest} words")
        return sentences


def read_training(data: DataConfig, validation_photos: int = 0) -> CaptionData:
    """Read the training photos, and the first so many to validate on, or all."""
    few = validation_photos or None
    if data.format == "shapes":
        count = data.shapes.validation
        pictures = generate(count + data.shapes.train, data.shapes.seed, data.shapes.pictures)
        examples = shapes_examples(pictures)
        return CaptionData(examples[count:], examples[:count][:few], [])
    assert data.annotations is not None  # Checked by DataConfig.
    if data.format != "table":  # Of a table, the reader says so; shards may be a pattern.
        check_data(data, ("annotations", "validation_annotations", "images"), "training.md")
    other_file = data.validation_annotations
    files = [(data.annotations, [data.train, data.validation])]
    if other_file is not None:
        files = [(data.annotations, [data.train]), (other_file, [data.validation])]
    examples_of_splits, sentences = [], []
    for file, splits in files:
        problems = Problems(data.on_problem, skipping=IN_TRAINING)
        problems.naming_images = "--set data.images=..."
        problems.by_captioner = data.captions_by_captioner
        problems.draws_splits = other_file is None
        examples_of_splits += read_splits(data.format, file, data.images, splits, problems)
        sentences += problems.sentences
    train, validation = examples_of_splits
    real_folder = cache(real_path)
    places = {_place(example.source, real_folder) for example in validation}
    if shared := [each.name for each in train if _place(each.source, real_folder) in places]:
        photos = f"{counted(len(shared), 'photo')}, {min(shared)!r} among them"
        advice = "give others as data.validation (split) or data.validation_annotations (file)"
        raise UserError(f"the training and the validation split share {photos}; {advice}")
    return CaptionData(train, validation[:few], sentences)


def check_data(data: Section, fields: Sequence[str], page: str) -> None:
    """Refuse a file or folder of a config's data that is not there."""
    for name in fields:
        path = getattr(data, name)
        if path is not None and not os.path.exists(existing_path(path)):
            advice = f"see docs/{page}, or name another place by --set data.{name}=PATH"
            raise UserError(f"data.{name} {path} does not exist: {advice}")


def _place(source: object, real_folder: Callable[[Path], str]) -> object:
    """Tells photos of one name apart: the file, or the place in a shard."""
    if not isinstance(source, Path):
        return source
    if os.path.islink(source):
        return real_path(source)
    return os.path.join(real_folder(source.parent), os.path.normcase(source.name))


Part = slice | list[int]  # Of rows.


@dataclass(frozen=True, kw_only=True)
class Rows(ABC):
    """Photos or annotation vectors, by row; `workers` processes read ahead (`Loader`)."""

    workers: int = 0

    @property
    @abstractmethod
    def readable(self) -> list[int]:
        """The rows whose photos could be read."""

    @abstractmethod
    def read(
        self, rows: Tensor, part: Part = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The sources of a part of the rows (B,), slice or indices, for a batch's `source`.

        Also the index (B,) into them of each row; None where every row has its own.
        generator: changes the photos at random, independently of the part.
        """

    def encode(self, source: Tensor) -> Tensor:
        """The annotation vectors (B, L, D), as they were read."""
        return source

    def normalise(self, source: Tensor) -> Tensor:
        """What a loss takes that trains the encoder."""
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

    @property
    def readable(self) -> list[int]:
        """The rows in the store, but for mirrored ones."""
        unreadable = self.store.unreadable
        return [row for row in range(len(self.store.record.images)) if row not in unreadable]

    def read(
        self, rows: Tensor, part: Part = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, None]:
        """Annotation vectors (B, L, D), and None. generator: mirrors photos."""
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

    @property
    def readable(self) -> list[int]:
        """All rows: an unreadable photo ends the run."""
        return list(range(len(self.examples)))

    def read(
        self, rows: Tensor, part: Part = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Photos (P, 3, size, size), uint8, each read once. generator: augments them."""
        chosen, photos = torch.unique(rows[part], return_inverse=True)  # (P,), (B,)
        if len(chosen) == len(photos):
            chosen, photos = rows[part], None
        pixels = []
        is_changed = generator is not None and self.augmentation != Augmentation()
        seed = int(torch.randint(2**62, (), generator=generator)) if is_changed else 0
        for row in chosen.tolist():
            photo = self.preprocessing.load(self.examples[row].source)
            if is_changed:
                photo = self.augmentation(photo, torch.Generator().manual_seed(seed ^ row))
            pixels.append(self.preprocessing.pixels(photo))
        stacked = torch.from_numpy(np.stack(pixels))  # (P, 3, size, size)
        return stacked.to(memory_format=torch.channels_last), photos

    def encode(self, source: Tensor) -> Tensor:
        """Photos (B, 3, size, size), uint8 -> annotation vectors (B, L, D), without a gradient."""
        normalised = self.normalise(source)
        with autocast(normalised.device, getattr(torch, self.precision)):
            return self.encoder.encode(normalised)

    def normalise(self, source: Tensor) -> Tensor:
        """Photos (B, 3, size, size), uint8 -> normalised, float32, on the encoder's device."""
        device = next(self.encoder.parameters()).device
        normalised: Tensor = self.preprocessing.normalise(source.to(device, non_blocking=True))
        return normalised
