"""Batches of a recipe's training captions or pairs, divided among processes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import ClassVar

import torch
from torch import Tensor

from captioner.caption import CaptioningBatch, ObjectiveConfig
from captioner.data.batches import (
    EncodedCaption,
    PairExample,
    batches_by_photo,
    batches_by_tokens,
    collate_captions,
    collate_pairs,
    length_bucketed_batches,
    load_ahead,
)
from captioner.data.example import ImageId
from captioner.data.instances import Grounding
from captioner.evaluation.map_measures import target_cells
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.features import PixelRows, Rows
from captioner.text.vocabulary import Vocabulary
from captioner.training import MicroBatch, Step, seed_of
from captioner.vision.preprocessing import Preprocessing


@dataclass(frozen=True)
class CaptionBatches:
    """Batches of captions of similar length, or of the same photos.

    map_targets: targets of the attention maps, for `objective.grounding`.

    Implements `captioner.training.Batches`. Augmentation does not depend on how a batch is
    divided; draws of the loss do, since each part has its own seed.
    """

    unit: ClassVar[str] = "captions"
    examples: list[EncodedCaption]
    rows: Rows
    recipe: CaptioningRecipe
    map_targets: MapTargets | None = None

    def steps(self, epoch: int) -> int:
        """The number of batches of an epoch."""
        examples = examples_of_epoch(self.examples, self.recipe.objective, epoch)
        return -(-len(examples) // self.recipe.training.batch_size)

    def batches(
        self, epoch: int, first: int, rank: int, world_size: int, micro_batches: int
    ) -> Generator[Step, None, None]:
        """The part of process `rank` of each batch, from number `first` on."""
        settings = self.recipe.training
        generator = torch.Generator().manual_seed(seed_of(settings.seed, epoch))
        examples = examples_of_epoch(self.examples, self.recipe.objective, epoch)
        if self.recipe.photos_in_step:
            # The encoder reads each photo once for all its captions. Batches of one length would
            # hold similar photos, which biases batch normalisation.
            rows = [row for row, _ in examples]
            plan = batches_by_photo(rows, settings.batch_size, generator)
        else:
            lengths = [len(tokens) for _, tokens in examples]
            plan = length_bucketed_batches(lengths, settings.batch_size, generator)
        cuts = range(rank, micro_batches * world_size, world_size)
        load = partial(self._step, examples, epoch, len(plan), cuts, micro_batches * world_size)
        for step in load_ahead(load, list(enumerate(plan))[first:], self.rows.workers):
            yield step if self.recipe.encoder.train else self._encoded(step)

    def _step(
        self,
        examples: list[EncodedCaption],
        epoch: int,
        steps: int,
        cuts: Sequence[int],
        all_cuts: int,
        batch: tuple[int, Sequence[int]],
    ) -> Step:
        """Load the parts `cuts` of a batch, given by its number and examples."""
        number, indices = batch
        chosen = [examples[index] for index in indices]
        progress = (epoch + number / steps) / self.recipe.training.epochs
        parts = [self._part(chosen, (epoch, number), cut, all_cuts, progress) for cut in cuts]
        return Step(parts, len(chosen))

    def _encoded(self, step: Step) -> Step:
        """The step with annotation vectors in place of photos, if a frozen encoder reads these."""
        parts = [
            part._replace(batch=part.batch._replace(source=self.rows.encode(part.batch.source)))
            for part in step.micro_batches
        ]
        return step._replace(micro_batches=parts)

    def _part(
        self,
        examples: list[EncodedCaption],
        step: tuple[int, int],
        cut: int,
        cuts: int,
        progress: float,
    ) -> MicroBatch:
        """Part number `cut` of the examples; a fully masked dummy caption if it has none."""
        if self.recipe.photos_in_step:  # Captions of a photo stay together.
            part = slice(*(_between_photos(examples, cut + side, cuts) for side in (0, 1)))
        else:  # Lengths are spread evenly.
            part = slice(cut, None, cuts)
        count = len(examples[part])
        if count == 0:
            part = slice(0, 1)
        inputs, targets, mask = collate_captions([tokens for _, tokens in examples[part]])  # (B, T)
        mask = mask if count else torch.zeros_like(mask)
        rows = torch.tensor([row for row, _ in examples])
        source, photos = self._source(rows, step, part)
        seed = seed_of(self.recipe.training.seed, *step, _DRAWS + cut)
        places = None
        if self.map_targets is not None:
            places = self.map_targets(examples[part], mask.shape[1])  # (B, T, L)
        return MicroBatch(
            CaptioningBatch(
                source, inputs, targets, mask, seed, rows[part], progress, photos, places
            ),
            count,
        )

    def _source(
        self, rows: Tensor, step: tuple[int, int], part: slice
    ) -> tuple[Tensor, Tensor | None]:
        """`source` and `photos` of `CaptioningBatch` for a part of a batch's rows (B,)."""
        # One generator a batch, so that a resumed epoch draws the same numbers.
        seed = seed_of(self.recipe.training.seed, *step)
        generator = torch.Generator().manual_seed(seed)
        if isinstance(self.rows, PixelRows):
            distinct, photos = torch.unique(rows[part], return_inverse=True)  # (P,), (B,)
            if len(distinct) < len(photos):
                return self.rows.read(distinct, generator), photos
            return self.rows.read(rows[part], generator), None
        return self.rows.read(rows, generator, part), None


def _between_photos(examples: list[EncodedCaption], cut: int, cuts: int) -> int:
    """The first example of part number `cut`, of parts that share no photo."""
    place = len(examples) * cut // cuts
    while 0 < place < len(examples) and examples[place][0] == examples[place - 1][0]:
        place += 1
    return place


_DRAWS = 1
"""Offset of a part's seed, so that it differs from the augmentation's."""


def examples_of_epoch(
    examples: list[EncodedCaption], objective: ObjectiveConfig, epoch: int
) -> list[EncodedCaption]:
    """The examples of an epoch, counted from 0.

    Self-critical training samples captions itself, so it takes each photo once, with its next
    caption in every epoch. examples: image by image.
    """
    if objective.self_critical is None:
        return examples
    chosen = []
    for _, captions in groupby(examples, key=lambda each: each[0]):
        of_photo = list(captions)
        chosen.append(of_photo[epoch % len(of_photo)])
    return chosen


@dataclass(frozen=True)
class MapTargets:
    """Where the maps of captions should lie: on the boxes of what their words name.

    image_ids: of the photos, by row.
    """

    grounding: Grounding
    image_ids: Sequence[ImageId]
    vocabulary: Vocabulary
    preprocessing: Preprocessing
    map_shape: tuple[int, int]

    def __call__(self, captions: Sequence[EncodedCaption], steps: int) -> Tensor:
        """The share of each place inside what a word names: (B, T, L), with T = `steps`.

        0 for a word that names nothing annotated.
        """
        rows, columns = self.map_shape
        places = torch.zeros(len(captions), steps, rows * columns)
        for number, (row, tokens) in enumerate(captions):
            words = [self.vocabulary.words[token] for token in tokens]
            targets = self.grounding.targets(self.image_ids[row], words)
            for step, target in enumerate(targets):
                if target is None:
                    continue
                region = self.preprocessing.region(*target.size)
                cells = target_cells(target, target.size, region, self.map_shape)
                if cells is not None:
                    places[number, step] = torch.from_numpy(cells.coverage).flatten()  # (L,)
        return places


@dataclass(frozen=True)
class TranslationBatches:
    """Batches of pairs of similar length.

    tokens: of a batch, padding included, on the longer side of its pairs. seed: of the order.
    workers: see `load_ahead`.

    Implements `captioner.training.Batches`. Counts target tokens as examples, since the loss
    is a mean over tokens: the gradient does not depend on how a batch is divided.
    """

    unit: ClassVar[str] = "tokens"
    examples: list[PairExample]
    tokens: int
    seed: int = 0
    workers: int = 0

    def steps(self, epoch: int) -> int:
        """The number of batches of an epoch, the same for every epoch."""
        return self._steps

    def batches(
        self, epoch: int, first: int, rank: int, world_size: int, micro_batches: int
    ) -> Generator[Step, None, None]:
        """The part of process `rank` of each batch, from number `first` on."""
        cuts = range(rank, micro_batches * world_size, world_size)
        load = partial(self._step, cuts, micro_batches * world_size)
        yield from load_ahead(load, self._plan(epoch)[first:], self.workers)

    def _step(self, cuts: Sequence[int], all_cuts: int, indices: Sequence[int]) -> Step:
        """Collate the parts `cuts` of a batch, given by the indices of its examples."""
        chosen = [self.examples[index] for index in indices]
        return Step([self._part(chosen, cut, all_cuts) for cut in cuts], _tokens(chosen))

    @cached_property
    def _steps(self) -> int:
        return len(self._plan(0))

    def _plan(self, epoch: int) -> list[list[int]]:
        generator = torch.Generator().manual_seed(seed_of(self.seed, epoch))
        lengths = [example.length for example in self.examples]
        return batches_by_tokens(lengths, self.tokens, generator)

    def _part(self, examples: list[PairExample], cut: int, cuts: int) -> MicroBatch:
        """Part number `cut` of the pairs; a fully masked dummy pair if it has none."""
        part = examples[cut::cuts]  # Lengths are spread evenly.
        batch = collate_pairs(part or examples[:1])
        if not part:
            batch = batch._replace(mask=torch.zeros_like(batch.mask))
        return MicroBatch(batch, _tokens(part))


def _tokens(examples: list[PairExample]) -> int:
    """The number of target tokens, ends included."""
    return sum(len(example.target) + 1 for example in examples)
