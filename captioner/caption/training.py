"""A captioner as the training loop sees it: something with a loss."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from captioner.attention import Memory
from captioner.caption.decoder import ShowAttendTellDecoder
from captioner.caption.objective import ObjectiveConfig, doubly_stochastic_penalty, map_divergence
from captioner.caption.scheduled_sampling import scheduled_inputs
from captioner.decoding import cross_entropies
from captioner.errors import UserError
from captioner.vision.encoder import Encoder


class CaptioningBatch(NamedTuple):
    """What one training step sees.

    source: annotation vectors (B, L, D), or preprocessed photos (B, 3, height, width) where the
        encoder is trained too; fewer than B where `photos` says so.
    inputs: (B, T) words fed in, `<start>` first. targets: (B, T) words to say, `<end>` last.
    mask: (B, T) boolean, False for padding.
    seed: of what is drawn for this batch: places by hard attention, words by scheduled sampling,
        captions by self-critical training. Of no effect where nothing is drawn.
    rows: (B,) the photos by number, for what knows more of them; on the CPU.
    progress: how much of the whole training is done before this batch, in [0, 1].
    photos: (B,) long, which of the source's photos each caption is of, where several captions are
        of one: the source then has each photo once, fewer than B. None where it has B.
    """

    source: Tensor
    inputs: Tensor
    targets: Tensor
    mask: Tensor
    seed: int = 0
    rows: Tensor | None = None
    progress: float = 0.0
    photos: Tensor | None = None

    def to(self, device: torch.device | str) -> CaptioningBatch:
        """The batch on another device, what it shows in float32."""
        return self._replace(
            source=self.source.to(device, non_blocking=True).float(),  # Stored as float16.
            inputs=self.inputs.to(device, non_blocking=True),
            targets=self.targets.to(device, non_blocking=True),
            mask=self.mask.to(device, non_blocking=True),
            photos=None if self.photos is None else self.photos.to(device, non_blocking=True),
        )

    def annotations(self, encoder: Encoder | None) -> Tensor:
        """The annotation vectors (B, L, D) of every caption's photo.

        encoder: reads the photos, each once; None where `source` is annotation vectors already.
        """
        found: Tensor = self.source if encoder is None else encoder(self.source)  # (P, L, D)
        if self.photos is None:
            return found
        if found.device.type == "cpu":  # Its gradient is added up in one order whatever threads do.
            return found.index_select(0, self.photos)  # (B, L, D)
        return found[self.photos]  # (B, L, D)


class CaptioningLoss(nn.Module):
    """Cross-entropy with doubly stochastic regularisation, for soft attention.

    encoder: given when it is trained together with the decoder, from photos.
    Raises `UserError` for a hard-attention decoder, which `HardAttentionLoss` is for, and for
    fields of the objective that are of hard attention.
    """

    def __init__(
        self,
        decoder: ShowAttendTellDecoder,
        objective: ObjectiveConfig,
        encoder: Encoder | None = None,
    ) -> None:
        super().__init__()
        if decoder.config.selection != "soft":
            raise UserError(
                "cross-entropy trains soft attention; hard attention needs REINFORCE as well"
            )
        objective.check_selection("soft")
        self.decoder = decoder
        self.encoder = encoder
        self.objective = objective

    def loss(self, batch: CaptioningBatch) -> dict[str, Tensor]:
        """The loss of a batch under the key `loss`, and what to report beside it.

        `loss`: mean over captions of equation 14 of Xu et al. 2015, in nats a caption.
        `cross_entropy`: nats a word, without smoothing or regularisation. `map_divergence`, where
        the objective has a weight for it: nats a word.
        """
        annotations = batch.annotations(self.encoder)
        return soft_attention_loss(self.decoder, self.objective, annotations, batch)


def soft_attention_loss(
    decoder: ShowAttendTellDecoder,
    objective: ObjectiveConfig,
    annotations: Tensor,
    batch: CaptioningBatch,
) -> dict[str, Tensor]:
    """What `CaptioningLoss.loss` gives, from the annotation vectors (B, L, D) of the batch."""
    memory = decoder.remember(annotations)
    fed = fed_words(decoder, memory, objective, batch)  # (B, T)
    said = decoder(memory, fed.unsqueeze(1))  # one row a source
    logits, weights = said.logits[:, 0], said.weights[:, 0]  # (B, T, V), (B, T, L)
    lost = cross_entropies(logits, batch.targets, batch.mask, objective.label_smoothing)
    loss = lost.smoothed  # (B,)
    if objective.doubly_stochastic > 0:
        penalty = doubly_stochastic_penalty(weights, batch.mask, objective.doubly_stochastic_target)
        loss = loss + objective.doubly_stochastic * penalty
    words = batch.mask.sum().clamp(min=1)
    report = {"cross_entropy": lost.plain.sum() / words}
    if objective.map_divergence > 0:
        divergence = map_divergence(weights, batch.mask)  # (B,)
        loss = loss - objective.map_divergence * divergence
        report["map_divergence"] = divergence.detach().sum() / words
    return {"loss": loss.mean(), **report}


def fed_words(
    decoder: ShowAttendTellDecoder,
    memory: Memory,
    objective: ObjectiveConfig,
    batch: CaptioningBatch,
) -> Tensor:
    """The words (B, T) to feed: the batch's own, or some of the decoder's, drawn from the seed."""
    probability = objective.scheduled_sampling * batch.progress
    if probability == 0:
        return batch.inputs
    # Not the seed itself, from which hard attention draws.
    generator = torch.Generator(batch.inputs.device).manual_seed(batch.seed ^ _WORDS)
    return scheduled_inputs(decoder, memory, batch.inputs, probability, generator)


_WORDS = 0x5343484544
"""Changes the seed of a batch into that of the words drawn for it."""
