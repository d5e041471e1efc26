"""Length normalisation: compensates for the lower log-probability of longer hypotheses."""

from __future__ import annotations

from dataclasses import dataclass

from captioner.errors import UserError


@dataclass(frozen=True)
class LengthNormalisation:
    """Divides a log-probability by ((5 + length) / 6) ** alpha.

    Wu et al. 2016, equation 14 (GNMT); not length ** alpha. The length counts the end token.
    alpha = 0 turns it off; 0.6 to 1 are common. Raises `UserError` for an alpha that is not
    between 0 and 10.
    """

    alpha: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 10:
            raise UserError(f"length normalisation alpha {self.alpha} is not between 0 and 10")

    def score(self, log_probability: float, length: int) -> float:
        """The ranking score of a hypothesis of this log-probability and length."""
        return float(log_probability / ((5 + length) / 6) ** self.alpha)
