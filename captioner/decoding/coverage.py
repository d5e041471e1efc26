"""The coverage penalty: prefers hypotheses that attend to the whole source."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

_FLOOR = 1e-10
"""Floor on the attention mass of a position; avoids log(0)."""


@dataclass(frozen=True)
class CoveragePenalty:
    """Adds beta * sum_i log(min(sum_t p_ti, 1)) to the score of a hypothesis.

    p_ti is the attention of step t to position i. A position with a total of 1 or more adds
    nothing; a neglected one lowers the score. Wu et al. 2016, equation 14 (GNMT), added after
    length normalisation. beta = 0 turns it off; 0.2 in the paper. The end token's step counts.
    """

    beta: float = 0.0

    def score(self, attention: Tensor, mask: Tensor | None = None) -> float:
        """The penalty for attention (T, L), in nats; at most 0.

        mask: (L,) boolean, False for padding, which is left out.
        """
        received = attention.sum(dim=0)  # (L,)
        if mask is not None:
            received = received[mask]
        return self.beta * float(received.clamp(_FLOOR, 1.0).log().sum())
