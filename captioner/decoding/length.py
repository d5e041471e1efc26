"""Length normalisation: compensates for the lower log-probability of longer hypotheses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LengthNormalisation:
    """Divides a log-probability by ((5 + length) / 6) ** alpha.

    Wu et al. 2016, equation 14 (GNMT); not length ** alpha. The length counts the end token.
    alpha = 0 turns it off; 0.6 to 1 are common.
    """

    alpha: float = 0.0

    def score(self, log_probability: float, length: int) -> float:
        """The ranking score of a hypothesis of this log-probability and length."""
        return float(log_probability / ((5 + length) / 6) ** self.alpha)
