"""How finished hypotheses are ranked: length normalisation and coverage penalty of GNMT."""

from __future__ import annotations

from torch import Tensor

_FLOOR = 1e-10
"""Floor on the attention mass of a position; avoids log(0)."""


def length_normalised(log_probability: float, length: int, alpha: float) -> float:
    """A log-probability divided by ((5 + length) / 6) ** alpha: longer hypotheses have lower ones.

    Wu et al. 2016, equation 14 (GNMT); not length ** alpha. The length counts the end token.
    alpha = 0 changes nothing; 0.6 to 1 are common.
    """
    return float(log_probability / ((5 + length) / 6) ** alpha)


def coverage_score(attention: Tensor, beta: float, mask: Tensor | None = None) -> float:
    """beta * sum_i log(min(sum_t p_ti, 1)), of attention p (T, L), in nats: at most 0.

    A position with a total of 1 or more adds nothing; a neglected one lowers the score. Wu et al.
    2016, equation 14 (GNMT), added after length normalisation; beta is 0.2 in the paper. The end
    token's step counts. mask: (L,) boolean, False for padding, which is left out.
    """
    received = attention.sum(dim=0)  # (L,)
    if mask is not None:
        received = received[mask]
    return beta * float(received.clamp(_FLOOR, 1.0).log().sum())
