"""Fold a linear layer on annotation vectors into the decoder that reads them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from captioner.caption import ShowAttendTellDecoder


@torch.no_grad()
def fold(decoder: ShowAttendTellDecoder, readout: nn.Conv2d, vectors: Tensor) -> None:
    """Multiply a linear layer W a + b into every matrix of a decoder that reads it, in place.

    The decoder, which must standardise annotation vectors, then reads the vectors a, standardised
    over training photos. What is left of the constants is close to zero where the decoder's own
    mean is that of W a + b, and is dropped.

    vectors: annotation vectors (N, L, D) of training photos.
    """
    standardisation = decoder.standardisation
    wanted = standardisation.deviation.clone()  # (D,)
    standardisation.fit([vectors])
    weight = readout.weight.flatten(1)  # (D, D)
    matrix = weight * standardisation.deviation / wanted[:, None]  # (D, D)
    for reader in (
        decoder.attention.score.key_projection.weight,
        decoder.lstm.weight_ih[:, decoder.config.embedding_size :],
        decoder.initial_hidden.weight,
        decoder.initial_cell.weight,
        decoder.output_context.weight,
    ):
        reader.copy_(reader @ matrix)
