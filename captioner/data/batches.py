"""Captions and sentence pairs as word indices, in batches that are loaded ahead."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from captioner.data.parallel import SentencePair
from captioner.errors import UserError
from captioner.text import TextVocabulary
from captioner.text.token_batches import TranslationBatch, collate_sources, decoder_inputs

_BATCHES_SORTED_TOGETHER = 100  # Leaves little padding, and the order random.

Key = TypeVar("Key")
Item = TypeVar("Item")


def collate_captions(captions: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Batch the word indices of one or more captions, padded to the longest.

    Returns the decoder's inputs (`<start>`, then the words), its targets (the words, then `<end>`),
    and the mask, False at the padding: (B, T) each.
    """
    targets, mask = collate_sources(captions)
    return decoder_inputs(targets), targets, mask


class PairExample(NamedTuple):
    """The token indices of a pair, without start and end."""

    source: list[int]
    target: list[int]

    @property
    def length(self) -> int:
        """Steps of the longer side: its tokens, and one for start or end."""
        return max(len(self.source), len(self.target)) + 1


def encode_pairs(
    pairs: Iterable[SentencePair],
    source: TextVocabulary,
    target: TextVocabulary,
    maximum_length: int,
) -> tuple[list[PairExample], list[int]]:
    """Encode sentence pairs; a side longer than `maximum_length` is cut to so many tokens.

    Returns them, and the lines of those that were cut.
    """
    examples, cut = list[PairExample](), list[int]()
    for pair in pairs:
        sides = source.split(pair.source), target.split(pair.target)
        kept = [tokens[:maximum_length] for tokens in sides]
        examples.append(PairExample(source.indices(kept[0]), target.indices(kept[1])))
        if max(map(len, sides)) > maximum_length:
            cut.append(pair.line)
    return examples, cut


def collate_pairs(examples: Sequence[PairExample]) -> TranslationBatch:
    """Batch pairs, one or more: adds start and end, pads each side to its longest."""
    source, source_mask = collate_sources([example.source for example in examples])
    targets, mask = collate_sources([example.target for example in examples])  # (B, T)
    return TranslationBatch(source, source_mask, decoder_inputs(targets), targets, mask)


def batches_by_photo(
    rows: Sequence[int],
    batch_size: int,
    generator: torch.Generator,
    lengths: Sequence[int] | None = None,
) -> list[list[int]]:
    """Divide examples into batches that keep a photo's captions together, in random order.

    A photo is then read once for all its captions, except where a batch ends between them.
    rows: the photo of each example. batch_size: examples a batch; one batch may have fewer.
    lengths: words of each example, by which they are sorted within 100 batches, whose photos the
        disk is read for once. Returns one epoch's batches, as indices into `rows`.
    """
    of_photo: dict[int, list[int]] = {}
    for example, row in enumerate(rows):
        of_photo.setdefault(row, []).append(example)
    examples = list(chain(*_shuffled(list(of_photo.values()), generator)))
    batches: list[list[int]] = []
    for bucket in _cut(examples, batch_size * _BATCHES_SORTED_TOGETHER):
        if lengths is not None:  # Shuffled first: sorting leaves a photo's captions side by side.
            bucket = sorted(_shuffled(bucket, generator), key=lengths.__getitem__)
        batches += _shuffled(_cut(bucket, batch_size), generator)
    return batches


def batches_by_tokens(
    lengths: Sequence[int], tokens: int, generator: torch.Generator
) -> list[list[int]]:
    """Divide examples into batches of at most `tokens` tokens, padding included, in random order.

    lengths: tokens of each example; a longer one gets its own batch. Returns one epoch's batches of
    indices into `lengths`: as many in every epoch, as the cuts depend on the lengths alone.
    """
    batches: list[list[int]] = []
    for example in sorted(_shuffled(range(len(lengths)), generator), key=lengths.__getitem__):
        if batches and (len(batches[-1]) + 1) * lengths[example] <= tokens:
            batches[-1].append(example)
        else:
            batches.append([example])
    return _shuffled(batches, generator)


def _shuffled(items: Sequence[Item], generator: torch.Generator) -> list[Item]:
    return [items[place] for place in torch.randperm(len(items), generator=generator).tolist()]


def _cut(items: list[Item], size: int) -> list[list[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


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
