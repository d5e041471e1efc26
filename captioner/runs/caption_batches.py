"""Batches of a recipe's training captions, divided among processes and into micro-batches."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from captioner.caption import CaptioningBatch
from captioner.data.examples import CaptionExample
from captioner.data.length_buckets import batches_by_photo, collate, length_bucketed_batches
from captioner.data.loading import load_ahead
from captioner.runs.annotation_rows import PixelRows, Rows
from captioner.runs.caption_objective import examples_of_epoch
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.map_targets import MapTargets
from captioner.training import MicroBatch, Step, seed_of


@dataclass(frozen=True)
class CaptionBatches:
    """Batches of captions of similar length, or of the same photos.

    map_targets: targets of the attention maps, for `objective.grounding`.

    Implements `captioner.training.Batches`. Augmentation does not depend on how a batch is
    divided; draws of the loss do, since each part has its own seed.
    """

    unit: ClassVar[str] = "captions"
    examples: list[CaptionExample]
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
            rows = [example.row for example in examples]
            plan = batches_by_photo(rows, settings.batch_size, generator)
        else:
            lengths = [len(example.tokens) for example in examples]
            plan = length_bucketed_batches(lengths, settings.batch_size, generator)
        cuts = range(rank, micro_batches * world_size, world_size)
        load = partial(self._step, examples, epoch, len(plan), cuts, micro_batches * world_size)
        for step in load_ahead(load, list(enumerate(plan))[first:], self.rows.workers):
            yield step if self.recipe.encoder.train else self._encoded(step)

    def _step(
        self,
        examples: list[CaptionExample],
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
        examples: list[CaptionExample],
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
        batch = collate(examples[part])
        mask = batch.mask if count else torch.zeros_like(batch.mask)  # (B, T)
        source, photos = self._source(torch.tensor([each.row for each in examples]), step, part)
        seed = seed_of(self.recipe.training.seed, *step, _DRAWS + cut)
        places = None
        if self.map_targets is not None:
            places = self.map_targets(examples[part], mask.shape[1])  # (B, T, L)
        return MicroBatch(
            CaptioningBatch(
                source,
                batch.inputs,
                batch.targets,
                mask,
                seed,
                batch.rows,
                progress,
                photos,
                places,
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


def _between_photos(examples: list[CaptionExample], cut: int, cuts: int) -> int:
    """The first example of part number `cut`, of parts that share no photo."""
    place = len(examples) * cut // cuts
    while 0 < place < len(examples) and examples[place].row == examples[place - 1].row:
        place += 1
    return place


_DRAWS = 1
"""Offset of a part's seed, so that it differs from the augmentation's."""
