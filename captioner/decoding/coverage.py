"""The coverage penalty: so that a hypothesis wins that has looked at all of its source."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from captioner.errors import UserError

_LEAST = 1e-10
"""What a position counts as having received that no step looked at, lest its logarithm be -inf."""


@dataclass(frozen=True)
class CoveragePenalty:
    """Adds beta * sum_i log(min(sum_t p_ti, 1)) to the score of a hypothesis.

    p_ti is the attention of step t to position i: a position that got 1 or more in all adds
    nothing, and what was passed over takes away. Wu et al. 2016, equation 14 (GNMT), behind the
    length penalty. beta = 0 is no penalty; 0.2 in the paper. As with length normalisation, the
    step of the end token counts too.

    Raises `UserError` for a beta that is not between 0 and 10.
    """

    beta: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 10:
            raise UserError(f"coverage penalty beta {self.beta} is not between 0 and 10")

    def score(self, attention: Tensor, mask: Tensor | None = None) -> float:
        """What is added for attention (T, L), in nats; at most 0.

        mask: (L,) boolean, False for padding, which nobody need look at.
        """
        received = attention.sum(dim=0)  # (L,)
        if mask is not None:
            received = received[mask]
        return self.beta * float(received.clamp(_LEAST, 1.0).log().sum())
