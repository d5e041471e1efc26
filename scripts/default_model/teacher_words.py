"""What a decoder says when it looks at a teacher's map: another thing for a student to reproduce.

The decoder was trained on the teacher's block 11 (`teacher_features.py`, then `captioner train
configs/default_model.yaml`) and stays as it is. It reads captions once from the teacher's map and
once from the student's, and what it says of the next word should be the same (Hinton et al.
2015, *Distilling the Knowledge in a Neural Network*). So the student learns best what words need,
where the error of the map itself counts all it shows alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from captioner.caption import Captioner, ShowAttendTellDecoder
from captioner.caption.captioner_folder import load_model
from captioner.data.examples import CaptionExample, caption_words, encode_captions
from captioner.data.flickr8k import read_flickr8k
from captioner.data.length_buckets import collate
from captioner.errors import UserError
from captioner.vision.vgg import VGGEncoder

MAXIMUM_LENGTH = 30


class Read(NamedTuple):
    """Captions fed to a decoder (B, K, T), where they have words (B, K, T), and what it said next.

    said: (B, K, T, V), logarithms of probabilities.
    """

    words: Tensor
    mask: Tensor
    said: Tensor

    def to(self, device: torch.device | str) -> Read:
        """The same on another device."""
        return Read(*(tensor.to(device) for tensor in self))


class TeacherWords:
    """A trained decoder and captions of N photos for it to read.

    model: its folder. captions: a token file of Flickr8k's kind. names: the photos, in order.
    captions_read: K, how many of a photo's captions are read at a time, drawn at random.
    Raises `UserError` as both readers do, and for a photo with fewer than K captions.
    """

    def __init__(
        self, model: Path, captions: Path, names: Sequence[str], captions_read: int = 2
    ) -> None:
        self.captioner = captioner = load_model(model)
        self.decoder: ShowAttendTellDecoder = captioner.decoder.eval().requires_grad_(False)
        found = read_flickr8k(captions, captions.parent, check_files=False).images
        words = {image.image_id: caption_words(image) for image in found}
        for name in names:
            if len(words.get(name, ())) < captions_read:
                raise UserError(f"{captions} has fewer than {captions_read} captions of {name}")
        encoded = encode_captions(
            (words[name] for name in names), captioner.vocabulary, MAXIMUM_LENGTH
        )
        self.captions: list[list[CaptionExample]] = [[] for _ in names]
        for example in encoded.examples:
            self.captions[example.row].append(example)
        self.captions_read = captions_read

    def to(self, device: torch.device | str) -> TeacherWords:
        """Move the decoder."""
        self.decoder.to(device)
        return self

    def seeing_with(self, encoder: VGGEncoder) -> Captioner:
        """The decoder, on the CPU, with other eyes than it learned from; no card, no confidence."""
        decoder = deepcopy(self.decoder).cpu()
        own = self.captioner
        return Captioner(encoder, decoder, own.vocabulary, own.preprocessing, own.search)

    def read(self, block_11: Tensor, rows: Tensor, generator: torch.Generator) -> Read:
        """Let the decoder read K captions of photos (B) from the teacher's maps (B, 512, h, w)."""
        examples = []
        for row in rows.tolist():
            own = self.captions[row]
            order = torch.randperm(len(own), generator=generator)[: self.captions_read]
            examples += [own[index] for index in order.tolist()]
        batch = collate(examples)
        shape = (len(rows), self.captions_read, -1)
        words = batch.inputs.view(shape).to(block_11.device)  # (B, K, T)
        mask = batch.mask.view(shape).to(block_11.device)  # (B, K, T)
        return Read(words, mask, self._said(block_11, words))

    def divergence(self, block_11: Tensor, read: Read) -> Tensor:
        """From what was read to what is said of the student's maps (B, 512, h, w): nats a word."""
        said = self._said(block_11, read.words)  # (B, K, T, V)
        apart = (read.said.exp() * (read.said - said)).sum(dim=-1)  # (B, K, T)
        return apart[read.mask].mean()

    def _said(self, block_11: Tensor, words: Tensor) -> Tensor:
        vectors = block_11.flatten(2).transpose(1, 2)  # (B, L, 512)
        logits = self.decoder(self.decoder.remember(vectors), words).logits  # (B, K, T, V)
        said: Tensor = logits.float().log_softmax(dim=-1)
        return said
