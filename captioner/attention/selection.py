"""Context vectors from scores: soft selection (a weighted sum) and hard (a draw)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from captioner.devices import at_least_float32


class Attended(NamedTuple):
    """The result of attending, for Q queries of each of B sources.

    context: (B, Q, D), the context vectors z.
    weights: (B, Q, L), not negative; rows sum to one, or less where `LocalAttention` does.
    scores: (B, Q, L), before masking and normalisation.
    positions: (B, Q), drawn by hard selection; None for soft.
    log_weights: (B, Q, L), of hard selection, before rounding, float32 at least; None for soft.

    With N heads all but `context` have a dimension N behind B.
    """

    context: Tensor
    weights: Tensor
    scores: Tensor
    positions: Tensor | None = None
    log_weights: Tensor | None = None

    @property
    def log_probability(self) -> Tensor:
        """The log-probability of the drawn position, (B, Q), which REINFORCE differentiates.

        Xu et al. 2015, equation 11, the term d log p(s | a) / dW. Of hard selection only.
        """
        assert self.positions is not None
        assert self.log_weights is not None
        return self.log_weights.gather(-1, self.positions.unsqueeze(-1)).squeeze(-1)  # (B, Q)

    @property
    def entropy(self) -> Tensor:
        """Entropy of the weights, (B, Q), in nats: H[s] of Xu et al. 2015, section 4.1.

        From 0 (one position) to log L. In float32 at least. Of hard selection only.
        """
        assert self.log_weights is not None
        # Masked positions (-inf) add nothing.
        finite = self.log_weights.masked_fill(self.log_weights == float("-inf"), 0.0)
        return -(self.log_weights.exp() * finite).sum(dim=-1)  # (B, Q)


def sample(probabilities: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw an index from each row of probabilities (..., N), which need not sum to one: (...).

    The largest of p / e with exponentially distributed e, which is the Gumbel-max trick. The same
    draws as `torch.multinomial`, which waits for a GPU to check its input: here the caller avoids
    NaN and rows of zeros. e is drawn on the generator's device.
    """
    device = probabilities.device if generator is None else generator.device
    noise = torch.empty(probabilities.shape, dtype=probabilities.dtype, device=device)
    noise = noise.exponential_(generator=generator).to(probabilities.device, non_blocking=True)
    return (probabilities / noise).argmax(dim=-1)  # (...)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Scores (..., L) -> weights (..., L), each row summing to one.

    mask: boolean, broadcastable to the scores, True where a position may be attended; the others
        get exactly 0. No row is all False, which `Memory` and `combined_mask` check.
    In float32 at least, so that sums over many words are exact under bfloat16 too. Bahdanau et al.
    2014, equation 6; Xu et al. 2015, equation 5.
    """
    return torch.softmax(_masked(scores, mask), dim=-1)  # (..., L)


def _masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Set scores (..., L), in float32 at least, to -inf where the mask is False."""
    wide = at_least_float32(scores)
    return wide if mask is None else wide.masked_fill(~mask, float("-inf"))


class SoftSelection(nn.Module):
    """Takes the expected value, z = sum_i alpha_i a_i. Xu et al. 2015, equation 13."""

    def forward(
        self, values: Tensor, scores: Tensor, mask: Tensor | None = None, *_: object
    ) -> Attended:
        """Values (..., L, D) and scores (..., Q, L) -> `Attended`; see also `HardSelection`."""
        weights = masked_softmax(scores, mask)  # (..., Q, L)
        context = weights.to(values.dtype) @ values  # (..., Q, D)
        return Attended(context, weights, scores)


class HardSelection(nn.Module):
    """Draws a position: z = a_s, s ~ Categorical(alpha). Xu et al. 2015, equations 8, 9.

    Draws in training mode, without a gradient: REINFORCE uses that of `Attended.log_probability`.
    In evaluation takes the most probable position; the authors' code takes the expected value.
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

        expected: (..., Q) boolean, queries whose context is the expected value, with its gradient
            (semi-sampling, section 4.1). They draw too, so that others' draws do not depend on it.
        """
        log_weights = torch.log_softmax(_masked(scores, mask), dim=-1)  # (..., Q, L)
        weights = log_weights.exp()  # (..., Q, L)
        positions = self.choose(log_weights.detach(), generator)  # (..., Q)
        index = positions.unsqueeze(-1).expand(*positions.shape, values.shape[-1])  # (..., Q, D)
        context = values.gather(-2, index)  # (..., Q, D)
        if expected is not None:
            mean = weights.to(values.dtype) @ values  # (..., Q, D)
            context = torch.where(expected.unsqueeze(-1), mean, context)
        return Attended(context, weights, scores, positions, log_weights)

    def choose(self, log_weights: Tensor, generator: torch.Generator | None) -> Tensor:
        """Logarithms of the weights (..., Q, L) -> positions (..., Q)."""
        if not self.training:
            return log_weights.argmax(dim=-1)  # (..., Q)
        return sample(log_weights.exp().float(), generator)  # (..., Q)
