"""A captioner as the training loop sees it: something with a loss."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from captioner.caption.decoder import ShowAttendTellDecoder
from captioner.caption.objective import ObjectiveConfig, cross_entropy, doubly_stochastic_penalty
from captioner.errors import UserError
from captioner.vision.vgg import VGGEncoder


class CaptioningBatch(NamedTuple):
    """What one training step sees.

    source: annotation vectors (B, L, D), or preprocessed photos (B, 3, height, width) where the
        encoder is trained too.
    inputs: (B, T) words fed in, `<start>` first. targets: (B, T) words to say, `<end>` last.
    mask: (B, T) boolean, False for padding.
    seed: of what hard attention draws for this batch; of no effect for soft.
    """

    source: Tensor
    inputs: Tensor
    targets: Tensor
    mask: Tensor
    seed: int = 0

    def to(self, device: torch.device | str) -> CaptioningBatch:
        """The batch on another device."""
        return CaptioningBatch(
            self.source.to(device, non_blocking=True),
            self.inputs.to(device, non_blocking=True),
            self.targets.to(device, non_blocking=True),
            self.mask.to(device, non_blocking=True),
            self.seed,
        )


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
        encoder: VGGEncoder | None = None,
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
        `cross_entropy`: nats a word, without smoothing or regularisation.
        """
        annotations = batch.source if self.encoder is None else self.encoder(batch.source)
        memory = self.decoder.remember(annotations)
        said = self.decoder(memory, batch.inputs.unsqueeze(1))  # one row a source
        logits, weights = said.logits[:, 0], said.weights[:, 0]  # (B, T, V), (B, T, L)
        plain = cross_entropy(logits, batch.targets, batch.mask)  # (B,)
        loss = plain
        if self.objective.label_smoothing > 0:
            loss = cross_entropy(logits, batch.targets, batch.mask, self.objective.label_smoothing)
        if self.objective.doubly_stochastic > 0:
            penalty = doubly_stochastic_penalty(
                weights, batch.mask, self.objective.doubly_stochastic_target
            )
            loss = loss + self.objective.doubly_stochastic * penalty
        return {
            "loss": loss.mean(),
            "cross_entropy": (plain.sum() / batch.mask.sum()).detach(),
        }
