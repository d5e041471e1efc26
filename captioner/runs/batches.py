"""Batches of training captions and of pairs of sentences."""

import hashlib
import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from captioner.data.example import Example
from captioner.data.instances import CocoInstances, read_synonyms
from captioner.data.parallel import SentencePair
from captioner.evaluation.maps import target_cells
from captioner.models.caption_losses import CaptioningBatch
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.photos import Rows
from captioner.text import SentenceVocabulary
from captioner.text.languages import straighten
from captioner.text.token_batches import (
    PairExample,
    TranslationBatch,
    collate_captions,
    collate_pairs,
)
from captioner.text.vocabulary import Vocabulary
from captioner.training.batches import Batches, Place
from captioner.training.loop import seed_of

_BATCHES_SORTED_TOGETHER = 100  # Leaves little padding, and the order random.

_coco_synonyms = cache(read_synonyms)

Thing = TypeVar("Thing")


@dataclass(frozen=True, eq=False)
class CaptionBatches(Batches[tuple[int, int], CaptioningBatch]):
    """Batches of captions of similar length, or of the same photos.

    examples: the photos, by row. photos: the rows to train on. instances: the objects of
    `objective.grounding`, on which maps of shape `map_shape` should lie where a word names them.

    Augmentation does not depend on how a batch is divided; draws of the loss do, since each part
    has its own seed. In a plan a caption is the row of its photo, and its number there.
    """

    examples: Sequence[Example]
    photos: Sequence[int]
    vocabulary: Vocabulary
    rows: Rows
    recipe: CaptioningRecipe
    instances: CocoInstances | None = None
    map_shape: tuple[int, int] = (1, 1)
    workers: int = 0

    def plan(self, epoch: int) -> list[list[tuple[int, int]]]:
        counts = [(row, len(self.examples[row].words)) for row in self.photos]
        captions = [(row, number) for row, count in counts for number in range(count)]
        if self.recipe.objective.self_critical is not None:
            # It samples captions itself: each photo once, with its next caption in every epoch.
            captions = [(row, epoch % count) for row, count in counts]
        settings = self.recipe.training
        generator = torch.Generator().manual_seed(seed_of(settings.seed, epoch))
        # With photos in the step the encoder reads each photo once for all its captions. Batches of
        # one length would hold similar photos, which biases batch normalisation.
        lengths = None
        if not self.recipe.photos_in_step:
            lengths = [len(self._words(*caption)) for caption in captions]
        rows = [row for row, _ in captions]
        batches = batches_by_photo(rows, settings.batch_size, generator, lengths)
        return [[captions[index] for index in batch] for batch in batches]

    def _words(self, row: int, number: int) -> list[str]:
        return self.examples[row].words[number][: self.recipe.data.maximum_length]

    def finish(self, part: CaptioningBatch) -> CaptioningBatch:
        """A part with annotation vectors or, if the encoder is trained, normalised photos."""
        is_trained = self.recipe.encoder.train
        prepare = self.rows.normalise if is_trained else self.rows.encode
        return part._replace(source=prepare(part.source))

    def part(
        self, examples: list[tuple[int, int]], part: int, part_count: int, place: Place
    ) -> CaptioningBatch:
        settings = self.recipe.training
        epoch, number = place
        all_rows = [row for row, _ in examples]
        turns: Sequence[int] = range(len(all_rows))  # Lengths are spread evenly.
        if self.recipe.photos_in_step:  # Captions of a photo stay together.
            distinct = list(dict.fromkeys(all_rows))
            turns = [distinct.index(row) for row in all_rows]
        chosen = [index for index, turn in enumerate(turns) if turn % part_count == part]
        share = len(chosen) / len(examples)
        chosen = chosen or [0]
        captions = [self.vocabulary.encode(self._words(*examples[index])) for index in chosen]
        inputs, targets, mask = collate_captions(captions)  # (B, T)
        # One generator a batch, so that a resumed epoch draws the same numbers.
        generator = torch.Generator().manual_seed(seed_of(settings.seed, epoch, number))
        source, photos = self.rows.read(torch.tensor(all_rows), chosen, generator)
        rows = torch.tensor([all_rows[index] for index in chosen])  # (B,)
        return CaptioningBatch(
            source,
            inputs,
            targets,
            mask & (share > 0),
            seed=seed_of(settings.seed, epoch, number, 1 + part),
            rows=rows,
            progress=(epoch + number / len(self)) / settings.epochs,
            photos=photos,
            places=self._places(rows.tolist(), captions, mask.shape[1]),
            share=share,
        )

    def _places(
        self, rows: Sequence[int], captions: Sequence[list[int]], steps: int
    ) -> Tensor | None:
        """Shares (B, T, L) of places inside what a word names, 0 if nothing; T is `steps`."""
        if self.instances is None:
            return None
        places = np.zeros((len(captions), steps, math.prod(self.map_shape)), np.float32)
        for number, (row, tokens) in enumerate(zip(rows, captions, strict=True)):
            words = [self.vocabulary.words[token] for token in tokens]
            for first, last, category in _coco_synonyms().mentions(words):
                places[number, first:last] = self._coverages(row, category)
        return torch.from_numpy(places)

    @cached_property
    def _coverages(self) -> Callable[[int, str], NDArray[np.float32] | float]:
        return cache(self._coverage)  # 1 KB each, about 0.3 GB for COCO with L = 196.

    def _coverage(self, row: int, category: str) -> NDArray[np.float32] | float:
        """The share (L,) of each place inside a category's objects in a photo; 0 if it has none."""
        assert self.instances is not None
        photo = self.examples[row].image_id
        target = self.instances.target(photo, category) if photo in self.instances else None
        if target is None:
            return 0.0
        region = self.recipe.preprocessing.region(*target.size)
        cells = target_cells(target, target.size, region, self.map_shape)
        return cells.coverage.ravel().astype(np.float32) if cells else 0.0  # (L,)


@dataclass(frozen=True, eq=False)
class TranslationBatches(Batches[PairExample, TranslationBatch]):
    """Batches of pairs of similar length.

    tokens: of a batch, padding included, on the longer side of its pairs. seed: of the order.

    Counts target tokens as examples: the gradient does not depend on how a batch is divided.
    """

    examples: list[PairExample]
    tokens: int
    seed: int = 0
    workers: int = 0

    def plan(self, epoch: int) -> list[list[PairExample]]:
        generator = torch.Generator().manual_seed(seed_of(self.seed, epoch))
        lengths = [max(map(len, sides)) + 1 for sides in self.examples]  # With start or end.
        batches = batches_by_tokens(lengths, self.tokens, generator)
        return [[self.examples[index] for index in batch] for batch in batches]

    def part(
        self, examples: list[PairExample], part: int, part_count: int, _: Place
    ) -> TranslationBatch:
        chosen = examples[part::part_count]  # Lengths are spread evenly.
        tokens = [len(example.target) + 1 for example in examples]  # With the end.
        share = sum(tokens[part::part_count]) / sum(tokens)
        batch = collate_pairs(chosen or examples[:1])
        return batch._replace(mask=batch.mask & (share > 0), share=share)


def encode_pairs(
    pairs: Iterable[SentencePair],
    source: SentenceVocabulary,
    target: SentenceVocabulary,
    maximum_length: int,
) -> tuple[list[PairExample], list[int]]:
    """Encode sentence pairs, each side cut to `maximum_length`; also the lines of those cut."""
    examples: list[PairExample] = []
    cut: list[int] = []
    for pair in pairs:
        sources = source.split(straighten(pair.source))  # As `Translator` reads them.
        targets = target.split(pair.target)
        indices = source.indices(sources[:maximum_length])
        expected = target.indices(targets[:maximum_length])
        # Arrays take a quarter of the memory of lists.
        examples.append(PairExample(array("i", indices), array("i", expected)))
        if max(len(sources), len(targets)) > maximum_length:
            cut.append(pair.line)
    return examples, cut


def batches_by_photo(
    rows: Sequence[int],
    batch_size: int,
    generator: torch.Generator,
    lengths: Sequence[int] | None = None,
) -> list[list[int]]:
    """One epoch's batches of examples, a photo's side by side, in random order: their indices.

    rows: the photo of each example. batch_size: examples a batch; one batch may have fewer.
    lengths: words of each example, by which they are sorted within 100 batches.
    """
    of_photo: dict[int, list[int]] = {}
    for example, row in enumerate(rows):
        of_photo.setdefault(row, []).append(example)
    examples = list(chain(*_shuffled(list(of_photo.values()), generator)))
    batches: list[list[int]] = []
    for bucket in chunks(examples, batch_size * _BATCHES_SORTED_TOGETHER):
        if lengths is not None:  # Shuffled first: sorting leaves a photo's captions side by side.
            bucket = sorted(_shuffled(bucket, generator), key=lengths.__getitem__)
        batches += _shuffled(chunks(bucket, batch_size), generator)
    return batches


def batches_by_tokens(
    lengths: Sequence[int], tokens: int, generator: torch.Generator
) -> list[list[int]]:
    """An epoch's batches of at most `tokens` tokens with padding, shuffled: indices.

    lengths: tokens of each example; a longer one gets its own batch. Every epoch has as many.
    """
    batches: list[list[int]] = []
    for example in sorted(_shuffled(range(len(lengths)), generator), key=lengths.__getitem__):
        if batches and (len(batches[-1]) + 1) * lengths[example] <= tokens:
            batches[-1].append(example)
        else:
            batches.append([example])
    return _shuffled(batches, generator)


def _shuffled(items: Sequence[Thing], generator: torch.Generator) -> list[Thing]:
    return [items[place] for place in torch.randperm(len(items), generator=generator).tolist()]


def digest_of(data: object) -> str:
    """SHA-256 of names and texts, as `repr` has them."""
    return hashlib.sha256(repr(data).encode("utf-8", "replace")).hexdigest()


def chunks(items: list[Thing], size: int) -> list[list[Thing]]:
    """Cut into lists of `size` items; the last may have fewer."""
    return [items[start : start + size] for start in range(0, len(items), size)]
