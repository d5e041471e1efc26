"""Batches of a recipe's training captions or pairs, divided among processes."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from typing import Any

import numpy
import torch
from torch import Tensor

from captioner.caption.losses import CaptioningBatch, ObjectiveConfig
from captioner.data.batches import (
    EncodedCaption,
    Loader,
    PairExample,
    batches_by_photo,
    batches_by_tokens,
    collate_captions,
    collate_pairs,
)
from captioner.data.example import ImageId
from captioner.data.instances import CocoInstances
from captioner.data.synonyms import Synonyms
from captioner.evaluation.maps import target_cells
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.features import PixelRows, Rows
from captioner.text.vocabulary import Vocabulary
from captioner.training.step import Part, seed_of
from captioner.vision.preprocessing import Preprocessing

_Key = tuple[list[EncodedCaption], Sequence[int], int, int, int]
"""Of a batch: its examples, which parts of how many, its epoch and its number there."""

_DRAWS = 1
"""Offset of a part's seed, so that it differs from the augmentation's."""


@dataclass(frozen=True)
class CaptionBatches:
    """Batches of captions of similar length, or of the same photos.

    map_targets: targets of the attention maps, for `objective.grounding`.

    Implements `captioner.training.step.Batches`. Augmentation does not depend on how a batch is
    divided; draws of the loss do, since each part has its own seed.
    """

    examples: list[EncodedCaption]
    rows: Rows
    recipe: CaptioningRecipe
    map_targets: MapTargets | None = None

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        examples = examples_of_epoch(self.examples, self.recipe.objective, 0)
        return -(-len(examples) // self.recipe.training.batch_size)

    def batches(
        self, epoch: int, first: int = 0, parts: Sequence[int] = (0,), part_count: int = 1
    ) -> Generator[list[Part], None, None]:
        """Some parts of each batch of an epoch, from number `first` on."""
        settings = self.recipe.training
        generator = torch.Generator().manual_seed(seed_of(settings.seed, epoch))
        examples = examples_of_epoch(self.examples, self.recipe.objective, epoch)
        # With photos in the step the encoder reads each photo once for all its captions. Batches of
        # one length would hold similar photos, which biases batch normalisation.
        lengths = None if self.recipe.photos_in_step else [len(tokens) for _, tokens in examples]
        plan = batches_by_photo(
            [row for row, _ in examples], settings.batch_size, generator, lengths
        )
        keys = (
            ([examples[index] for index in plan[number]], parts, part_count, epoch, number)
            for number in range(first, len(plan))
        )
        to_source = self.rows.encode
        if isinstance(self.rows, PixelRows) and self.recipe.encoder.train:
            to_source = self.rows.normalise  # The loss encodes.
        for loaded in self._loader(keys):
            yield [
                (batch._replace(source=to_source(batch.source)), share) for batch, share in loaded
            ]

    @cached_property
    def _loader(self) -> Loader[_Key, list[Part]]:
        return Loader(self._parts, self.rows.workers)

    def _parts(self, key: _Key) -> list[Part]:
        """The parts of a batch that a key asks for."""
        examples, parts, part_count, epoch, number = key
        return [self._part(examples, part, part_count, epoch, number) for part in parts]

    def _part(
        self, examples: list[EncodedCaption], part: int, part_count: int, epoch: int, number: int
    ) -> Part:
        """A part of the examples of a batch; a fully masked dummy caption if it has none."""
        settings = self.recipe.training
        if self.recipe.photos_in_step:  # Captions of a photo stay together.
            chosen = slice(
                *(_between_photos(examples, each, part_count) for each in (part, part + 1))
            )
        else:  # Lengths are spread evenly.
            chosen = slice(part, None, part_count)
        count = len(examples[chosen])
        if count == 0:
            chosen = slice(0, 1)
        inputs, targets, mask = collate_captions([tokens for _, tokens in examples[chosen]])
        mask = mask if count else torch.zeros_like(mask)  # (B, T)
        rows = torch.tensor([row for row, _ in examples])
        # One generator a batch, so that a resumed epoch draws the same numbers.
        generator = torch.Generator().manual_seed(seed_of(settings.seed, epoch, number))
        source, photos = self.rows.read(rows, chosen, generator)
        batch = CaptioningBatch(
            source,
            inputs,
            targets,
            mask,
            seed=seed_of(settings.seed, epoch, number, _DRAWS + part),
            rows=rows[chosen],
            progress=(epoch + number / len(self)) / settings.epochs,
            photos=photos,
        )
        if self.map_targets is not None:
            places = self.map_targets(examples[chosen], mask.shape[1])  # (B, T, L)
            batch = batch._replace(places=places)
        return batch, count / len(examples)


def _between_photos(examples: list[EncodedCaption], part: int, part_count: int) -> int:
    """The first example of a part, of parts that share no photo."""
    place = len(examples) * part // part_count
    while 0 < place < len(examples) and examples[place][0] == examples[place - 1][0]:
        place += 1
    return place


def examples_of_epoch(
    examples: list[EncodedCaption], objective: ObjectiveConfig, epoch: int
) -> list[EncodedCaption]:
    """The examples of an epoch, counted from 0.

    Self-critical training samples captions itself, so it takes each photo once, with its next
    caption in every epoch. examples: image by image.
    """
    if objective.self_critical is None:
        return examples
    photos = [list(captions) for _, captions in groupby(examples, key=lambda each: each[0])]
    return [captions[epoch % len(captions)] for captions in photos]


@dataclass(frozen=True)
class MapTargets:
    """Where the maps of captions should lie: on the objects that their words name.

    image_ids: of the photos, by row.
    """

    instances: CocoInstances
    synonyms: Synonyms
    image_ids: Sequence[ImageId]
    vocabulary: Vocabulary
    preprocessing: Preprocessing
    map_shape: tuple[int, int]

    def __call__(self, captions: Sequence[EncodedCaption], steps: int) -> Tensor:
        """The share of each place inside what a word names: (B, T, L), with T = `steps`.

        0 for a word that names nothing annotated.
        """
        places = numpy.zeros((len(captions), steps, math.prod(self.map_shape)), numpy.float32)
        for number, (row, tokens) in enumerate(captions):
            words = [self.vocabulary.words[token] for token in tokens]
            for first, last, category in self.synonyms.mentions(words):
                places[number, first:last] = self._coverage(row, category)
        return torch.from_numpy(places)

    @cached_property
    def _coverage(self) -> Callable[[int, str], numpy.ndarray[Any, Any] | float]:
        """`_compute_coverage`, once: 1 KB each, about 0.3 GB for COCO with L = 196."""
        return cache(self._compute_coverage)

    def _compute_coverage(self, row: int, category: str) -> numpy.ndarray[Any, Any] | float:
        """The share (L,) of each place inside a category's objects in a photo; 0 if it has none."""
        image = self.image_ids[row]
        target = self.instances.target(image, category) if image in self.instances else None
        if target is None:
            return 0.0
        region = self.preprocessing.region(*target.size)
        cells = target_cells(target, target.size, region, self.map_shape)
        return 0.0 if cells is None else cells.coverage.ravel().astype(numpy.float32)  # (L,)


@dataclass(frozen=True)
class TranslationBatches:
    """Batches of pairs of similar length.

    tokens: of a batch, padding included, on the longer side of its pairs. seed: of the order.
    workers: see `Loader`.

    Implements `captioner.training.step.Batches`. Counts target tokens as examples, since the loss
    is a mean over tokens: the gradient does not depend on how a batch is divided.
    """

    examples: list[PairExample]
    tokens: int
    seed: int = 0
    workers: int = 0

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        return len(self._plan(0))

    def batches(
        self, epoch: int, first: int = 0, parts: Sequence[int] = (0,), part_count: int = 1
    ) -> Generator[list[Part], None, None]:
        """Some parts of each batch of an epoch, from number `first` on."""
        yield from self._loader((parts, part_count, each) for each in self._plan(epoch)[first:])

    @cached_property
    def _loader(self) -> Loader[tuple[Sequence[int], int, list[int]], list[Part]]:
        return Loader(self._parts, self.workers)

    def _plan(self, epoch: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed_of(self.seed, epoch))
        lengths = [example.length for example in self.examples]
        return batches_by_tokens(lengths, self.tokens, generator)

    def _parts(self, key: tuple[Sequence[int], int, list[int]]) -> list[Part]:
        """Parts of a batch, given their numbers, of how many, and the batch's examples.

        A fully masked dummy pair for a part without examples.
        """
        parts, part_count, indices = key
        examples = [self.examples[index] for index in indices]
        loaded: list[Part] = []
        for part in parts:
            chosen = examples[part::part_count]  # Lengths are spread evenly.
            batch = collate_pairs(chosen or examples[:1])
            if not chosen:
                batch = batch._replace(mask=torch.zeros_like(batch.mask))
            loaded.append((batch, _tokens(chosen) / _tokens(examples)))
        return loaded


def _tokens(examples: list[PairExample]) -> int:
    """The number of target tokens, ends included."""
    return sum(len(example.target) + 1 for example in examples)
