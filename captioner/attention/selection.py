"""From scores to a context vector: soft selection (a weighted sum) and hard selection (a draw)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from captioner.errors import UserError


class Attended(NamedTuple):
    """What a look at a memory gives, for Q queries of each of B sources.

    context: (B, Q, D), the context vectors z.
    weights: (B, Q, L), the scores after normalisation: non-negative, each row sums to one.
    scores: (B, Q, L), before normalisation and before masking.
    positions: (B, Q), the drawn position, for hard selection; None for soft.

    With N heads a dimension N stands behind B in all but `context`.
    """

    context: Tensor
    weights: Tensor
    scores: Tensor
    positions: Tensor | None = None

    @property
    def log_probability(self) -> Tensor:
        """(B, Q): log of the weight of the drawn position; what REINFORCE differentiates.

        Xu et al. 2015, equation 11, the term d log p(s | a) / dW. Raises `UserError` when the
        selection was soft and nothing was drawn.
        """
        if self.positions is None:
            raise UserError("soft attention draws no position, so none has a log-probability")
        chosen = self.weights.gather(-1, self.positions.unsqueeze(-1))  # (B, Q, 1)
        return chosen.squeeze(-1).clamp(min=torch.finfo(chosen.dtype).tiny).log()  # (B, Q)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Scores (..., L) -> weights (..., L), summing to one over the positions that may be attended.

    mask: boolean, broadcastable to the scores, True where a position may be attended; the others
    get exactly 0. Computed in float32 at least (float64 stays float64), returned in the type of
    the scores. The caller vouches that no row is empty (`Memory` and `Attention` check it).
    Bahdanau et al. 2014, equation 6; Xu et al. 2015, equation 5.
    """
    wide = scores if scores.dtype == torch.float64 else scores.float()  # (..., L)
    if mask is not None:
        wide = wide.masked_fill(~mask, float("-inf"))
    return torch.softmax(wide, dim=-1).to(scores.dtype)  # (..., L)


class SoftSelection(nn.Module):
    """The expected value: z = sum_i alpha_i a_i. Xu et al. 2015, equation 13."""

    def forward(
        self,
        values: Tensor,
        scores: Tensor,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Attended:
        """Values (..., L, D) and scores (..., Q, L) -> `Attended`. The generator is not used."""
        weights = masked_softmax(scores, mask)  # (..., Q, L)
        return Attended(weights @ values, weights, scores)  # context (..., Q, D)


class HardSelection(nn.Module):
    """One position, drawn: z = a_s with s ~ Categorical(alpha). Xu et al. 2015, equations 8 and 9.

    In training mode positions are drawn from the generator, on its device; in evaluation mode the
    context is that of the most probable position. No gradient flows through the draw: it comes
    from `Attended.log_probability`, by REINFORCE.
    """

    def forward(
        self,
        values: Tensor,
        scores: Tensor,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Attended:
        """Values (..., L, D) and scores (..., Q, L) -> `Attended` with positions (..., Q)."""
        weights = masked_softmax(scores, mask)  # (..., Q, L)
        if self.training:
            rows = weights.detach().float().flatten(end_dim=-2)  # (... * Q, L)
            if generator is not None:
                rows = rows.to(generator.device)
            drawn = torch.multinomial(rows, num_samples=1, generator=generator)  # (... * Q, 1)
            positions = drawn.view(weights.shape[:-1]).to(weights.device)  # (..., Q)
        else:
            positions = weights.argmax(dim=-1)  # (..., Q)
        index = positions.unsqueeze(-1).expand(*positions.shape, values.shape[-1])  # (..., Q, D)
        return Attended(values.gather(-2, index), weights, scores, positions)  # context (..., Q, D)
