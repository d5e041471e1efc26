"""From scores to a context vector: soft selection (a weighted sum) and hard selection (a draw)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from captioner.errors import UserError


class Attended(NamedTuple):
    """What a look at a memory gives, for Q queries of each of B sources.

    context: (B, Q, D), the context vectors z.
    weights: (B, Q, L), the scores after normalisation: non-negative, each row sums to one, or to
        less where `LocalAttention` favours its centre.
    scores: (B, Q, L), before normalisation and before masking.
    positions: (B, Q), the drawn position, for hard selection; None for soft.
    log_weights: (B, Q, L), logarithms of the weights for hard selection, taken before the weights
        are rounded to the type of the scores, and so in float32 at least; None for soft.

    With N heads a dimension N stands behind B in all but `context`.
    """

    context: Tensor
    weights: Tensor
    scores: Tensor
    positions: Tensor | None = None
    log_weights: Tensor | None = None

    @property
    def log_probability(self) -> Tensor:
        """(B, Q): log of the probability of the drawn position; what REINFORCE differentiates.

        Xu et al. 2015, equation 11, the term d log p(s | a) / dW. In float32 at least, however
        narrow the scores. Raises `UserError` when the selection was soft and nothing was drawn.
        """
        if self.positions is None or self.log_weights is None:
            raise UserError("soft attention draws no position, so none has a log-probability")
        return self.log_weights.gather(-1, self.positions.unsqueeze(-1)).squeeze(-1)  # (B, Q)

    @property
    def entropy(self) -> Tensor:
        """(B, Q): of the distribution over positions, in nats; H[s] of Xu et al. 2015, section 4.1.

        From 0, all on one position, to log L. In float32 at least. Raises `UserError` when the
        selection was soft.
        """
        if self.log_weights is None:
            raise UserError("soft attention draws no position, so no draw has an entropy")
        # What is masked has the logarithm -inf and adds nothing.
        finite = self.log_weights.masked_fill(self.log_weights == float("-inf"), 0.0)
        return -(self.log_weights.exp() * finite).sum(dim=-1)  # (B, Q)


def masked_log_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Scores (..., L) -> logarithms of the weights (..., L), -inf where the mask is False.

    As `masked_softmax`, but returned as computed: in float32 at least.
    """
    return torch.log_softmax(_masked(scores, mask), dim=-1)  # (..., L)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Scores (..., L) -> weights (..., L), summing to one over the positions that may be attended.

    mask: boolean, broadcastable to the scores, True where a position may be attended; the others
    get exactly 0. Computed in float32 at least (float64 stays float64), returned in the type of
    the scores. The caller vouches that no row is empty (`Memory` and `Attention` check it).
    Bahdanau et al. 2014, equation 6; Xu et al. 2015, equation 5.
    """
    return torch.softmax(_masked(scores, mask), dim=-1).to(scores.dtype)  # (..., L)


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores (..., L) in float32 at least, -inf where the mask is False."""
    wide = scores if scores.dtype == torch.float64 else scores.float()
    return wide if mask is None else wide.masked_fill(~mask, float("-inf"))


class SoftSelection(nn.Module):
    """The expected value: z = sum_i alpha_i a_i. Xu et al. 2015, equation 13."""

    def forward(
        self,
        values: Tensor,
        scores: Tensor,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        expected: Tensor | None = None,
    ) -> Attended:
        """Values (..., L, D) and scores (..., Q, L) -> `Attended`.

        generator, expected: for hard selection; here nothing is drawn and all is expected value.
        """
        weights = masked_softmax(scores, mask)  # (..., Q, L)
        return Attended(weights @ values, weights, scores)  # context (..., Q, D)


class HardSelection(nn.Module):
    """One position, drawn: z = a_s with s ~ Categorical(alpha). Xu et al. 2015, equations 8 and 9.

    In training mode positions are drawn from the generator, on its device; in evaluation mode the
    most probable position is taken, so that the same memory gives the same context. (The authors'
    published code takes the expected value there, unless told to draw.) No gradient flows through
    the draw: it comes from `Attended.log_probability`, by REINFORCE.
    """

    def forward(
        self,
        values: Tensor,
        scores: Tensor,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        expected: Tensor | None = None,
    ) -> Attended:
        """Values (..., L, D) and scores (..., Q, L) -> `Attended` with positions (..., Q).

        expected: (..., Q) boolean, True for queries whose context is to be the expected value, as
            in soft selection, with its gradient: semi-sampling, section 4.1. A position is drawn
            for them too, so that what others draw does not depend on them, and is of no effect.
        """
        log_weights = masked_log_softmax(scores, mask)  # (..., Q, L)
        weights = log_weights.exp().to(scores.dtype)  # (..., Q, L)
        positions = self.choose(log_weights.detach(), generator)  # (..., Q)
        index = positions.unsqueeze(-1).expand(*positions.shape, values.shape[-1])  # (..., Q, D)
        context = values.gather(-2, index)  # (..., Q, D)
        if expected is not None:
            context = torch.where(expected.unsqueeze(-1), weights @ values, context)
        return Attended(context, weights, scores, positions, log_weights)

    def choose(self, log_weights: Tensor, generator: torch.Generator | None) -> Tensor:
        """Logarithms of the weights (..., Q, L) -> a position for each query, (..., Q)."""
        if not self.training:
            return log_weights.argmax(dim=-1)  # (..., Q)
        rows = log_weights.exp().float().flatten(end_dim=-2)  # (... * Q, L)
        if generator is not None:
            rows = rows.to(generator.device)
        drawn = torch.multinomial(rows, num_samples=1, generator=generator)  # (... * Q, 1)
        return drawn.view(log_weights.shape[:-1]).to(log_weights.device)  # (..., Q)
