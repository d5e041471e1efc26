"""Batches and the cross-entropy loss of captioning."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from captioner.attention import Memory
from captioner.caption.caption_decoder import CaptionDecoder
from captioner.caption.objective import (
    ObjectiveConfig,
    doubly_stochastic_penalty,
    grounding_penalty,
)
from captioner.caption.scheduled_sampling import scheduled_inputs
from captioner.decoding import cross_entropies
from captioner.errors import UserError
from captioner.vision.encoder import Encoder


class CaptioningBatch(NamedTuple):
    """The batch of one training step.

    source: annotation vectors (B, L, D), or preprocessed photos (B, 3, height, width) where the
        encoder is trained too; fewer than B with `photos`.
    inputs: (B, T) fed words, `<start>` first. targets: (B, T) words to predict, `<end>` last.
    mask: (B, T) boolean, False for padding.
    seed: of the batch's draws: positions of hard attention, words of scheduled sampling, captions
        of self-critical training.
    rows: (B,) numbers of the photos in the data set, on the CPU; for rewards.
    progress: share of the training done before this batch, in [0, 1].
    photos: (B,) long, index into `source` of each caption's photo, where several captions share
        a photo. None where `source` has B photos.
    places: (B, T, L) the share of each place inside what the word names, for
        `ObjectiveConfig.grounding`; 0 for a word that names nothing.
    """

    source: Tensor
    inputs: Tensor
    targets: Tensor
    mask: Tensor
    seed: int = 0
    rows: Tensor | None = None
    progress: float = 0.0
    photos: Tensor | None = None
    places: Tensor | None = None

    def to(self, device: torch.device | str) -> CaptioningBatch:
        """Move the batch to a device, the source as float32."""
        return self._replace(
            source=self.source.to(device, non_blocking=True).float(),  # Stored as float16.
            inputs=self.inputs.to(device, non_blocking=True),
            targets=self.targets.to(device, non_blocking=True),
            mask=self.mask.to(device, non_blocking=True),
            photos=None if self.photos is None else self.photos.to(device, non_blocking=True),
            places=None if self.places is None else self.places.to(device, non_blocking=True),
        )

    def annotations(self, encoder: Encoder | None) -> Tensor:
        """The annotation vectors (B, L, D) of every caption's photo.

        encoder: encodes each photo once; None where `source` is annotation vectors.
        """
        vectors: Tensor = self.source if encoder is None else encoder(self.source)  # (P, L, D)
        if self.photos is None:
            return vectors
        if vectors.device.type == "cpu":  # Its gradient is deterministic with several threads.
            return vectors.index_select(0, self.photos)  # (B, L, D)
        return vectors[self.photos]  # (B, L, D)


class CaptioningLoss(nn.Module):
    """Cross-entropy with doubly stochastic regularisation, for soft attention.

    encoder: given when it is trained together with the decoder, from photos.
    Raises `UserError` for a decoder or objective fields of the other kind of attention.
    """

    selection: ClassVar[str] = "soft"

    def __init__(
        self,
        decoder: CaptionDecoder,
        objective: ObjectiveConfig,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__()
        if decoder.config.selection != self.selection:
            raise UserError(f"this loss trains {self.selection} attention")
        objective.check_selection(self.selection)
        self.decoder = decoder
        self.encoder = encoder
        self.objective = objective

    def loss(self, batch: CaptioningBatch) -> dict[str, Tensor]:
        """The loss of a batch under the key `loss`, and quantities to report.

        `loss`: mean over captions of equation 14 of Xu et al. 2015, in nats a caption.
        `cross_entropy`: nats a word, without smoothing or regularisation. `grounding`, of a batch
        with `places`: nats a word that names something.
        """
        return self.cross_entropy_loss(batch, batch.annotations(self.encoder))

    def cross_entropy_loss(self, batch: CaptioningBatch, annotations: Tensor) -> dict[str, Tensor]:
        """`CaptioningLoss.loss`, given the annotation vectors (B, L, D) of the batch."""
        objective = self.objective
        memory = self.decoder.remember(annotations)
        forced = self.decoder(memory, self.fed_words(batch, memory).unsqueeze(1))  # K = 1
        logits, weights = forced.logits.squeeze(1), forced.weights.squeeze(1)  # (B, T, V or L)
        entropies = cross_entropies(logits, batch.targets, batch.mask, objective.label_smoothing)
        loss = entropies.smoothed  # (B,)
        if objective.doubly_stochastic > 0:
            target = objective.doubly_stochastic_target
            penalty = doubly_stochastic_penalty(weights, batch.mask, target)  # (B,)
            loss = loss + objective.doubly_stochastic * penalty
        words = batch.mask.sum().clamp(min=1)
        report = {"cross_entropy": entropies.plain.sum() / words}
        if batch.places is not None:
            missed = grounding_penalty(weights, batch.places)  # (B,)
            loss = loss + objective.grounding * missed
            named = (batch.places.amax(dim=-1) > 0).sum().clamp(min=1)
            report["grounding"] = missed.detach().sum() / named
        return {"loss": loss.mean(), **report}

    def fed_words(self, batch: CaptioningBatch, memory: Memory) -> Tensor:
        """The words (B, T) to feed: the batch's inputs, after scheduled sampling."""
        probability = self.objective.scheduled_sampling * batch.progress
        if probability == 0:
            return batch.inputs
        generator = torch.Generator(batch.inputs.device).manual_seed(batch.seed ^ _SAMPLING_SEED)
        return scheduled_inputs(self.decoder, memory, batch.inputs, probability, generator)


_SAMPLING_SEED = 0x5343484544
"""XORed with a batch's seed: scheduled sampling and hard attention draw different numbers."""
