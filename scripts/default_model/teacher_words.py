"""What a decoder says that looks at the teachers' maps: a student learns to say the same.

The decoder was trained on `TeacherMaps` (`teacher_features.py`, then `captioner train
configs/default_model.yaml`). It is fed captions of a photo, and its probabilities of each next word
are what a copy of it learns to give from the student's maps (Hinton et al. 2015, *Distilling the
Knowledge in a Neural Network*). So the student learns best what words need; the error of the maps
counts all that they show alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from captioner.caption import ShowAttendTellDecoder
from captioner.caption.folder import load_model
from captioner.data.batches import collate_captions, encode_captions
from captioner.data.readers import read_examples
from captioner.devices import autocast

CAPTIONS_READ = 2
"""K, the captions of a photo that are read at a time, drawn at random."""

MAXIMUM_LENGTH = 30


class Reading(NamedTuple):
    """Captions that were fed to a decoder, and what it said next.

    words: (B, K, T). mask: (B, K, T), False for padding. said: (B, K, T, V), log-probabilities.
    """

    words: Tensor
    mask: Tensor
    said: Tensor

    def to(self, device: torch.device | str) -> Reading:
        """The same on another device."""
        return Reading(*(tensor.to(device) for tensor in self))


class TeacherWords:
    """A trained decoder, and captions of N photos for it to read."""

    def __init__(self, model: Path, table: Path, photos: Sequence[Path], precision: str) -> None:
        """Read them.

        model: the decoder's folder. table: `all.jsonl` of `tables.py`. precision: of its products.
        Raises `UserError` as both readers do.
        """
        self.captioner = load_model(model)
        self.decoder: ShowAttendTellDecoder = self.captioner.decoder.requires_grad_(False)
        self.precision: torch.dtype = getattr(torch, precision)
        words = {each.name: each.words for each in read_examples("table", table, split="train")}
        encoded, _ = encode_captions(
            (words[str(photo.resolve())] for photo in photos),
            self.captioner.vocabulary,
            MAXIMUM_LENGTH,
        )
        self.captions: list[list[list[int]]] = [[] for _ in photos]
        for row, tokens in encoded:
            self.captions[row].append(tokens)

    def student(self) -> ShowAttendTellDecoder:
        """A copy of the decoder that can be trained."""
        return deepcopy(self.decoder).requires_grad_(True)

    @torch.no_grad()
    def read(self, maps: Tensor, rows: Sequence[int], generator: torch.Generator) -> Reading:
        """Feed the decoder K captions of each of B photos, given the teachers' (B, 512, h, w)."""
        examples = []
        for row in rows:
            own = self.captions[row]
            drawn = torch.randint(len(own), (CAPTIONS_READ,), generator=generator)
            examples += [own[index] for index in drawn.tolist()]
        inputs, _, masks = collate_captions(examples)
        shape = (len(rows), CAPTIONS_READ, -1)
        words = inputs.view(shape)  # (B, K, T)
        mask = masks.view(shape)  # (B, K, T)
        with autocast(maps.device, self.precision):
            return Reading(words, mask, say(self.decoder, maps, words))


def say(decoder: ShowAttendTellDecoder, maps: Tensor, words: Tensor) -> Tensor:
    """Log-probabilities (B, K, T, V) of the words after those fed (B, K, T), given (B, D, h, w)."""
    annotations = maps.flatten(2).transpose(1, 2)  # (B, L, D)
    logits: Tensor = decoder(decoder.remember(annotations), words).logits  # (B, K, T, V)
    return logits.float().log_softmax(dim=-1)


def divergence(decoder: ShowAttendTellDecoder, maps: Tensor, reading: Reading) -> Tensor:
    """From what the teacher said to what a decoder says of other maps (B, D, h, w): nats a word."""
    said = say(decoder, maps, reading.words)  # (B, K, T, V)
    apart = (reading.said.exp() * (reading.said - said)).sum(dim=-1)  # (B, K, T)
    return apart[reading.mask].mean()
