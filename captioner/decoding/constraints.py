"""Limits on decoding: minimum and maximum length, forbidden tokens, no repetitions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.errors import UserError

BLOCKED = float("-inf")

IMPOSSIBLE = -1e4
"""Floor on an end token's log-probability where nothing else is left; finite, so that the
hypothesis can be ranked and saved as JSON."""


@dataclass(frozen=True)
class Constraints:
    """Limits on hypotheses. Lengths count tokens without the end token.

    minimum_length: the end token is blocked before this many tokens.
    maximum_length: after this many tokens all but the end token is blocked, so that every search
        ends with finished hypotheses.
    block_ngrams: n; no n-gram occurs twice in a hypothesis. 0 blocks none.
    forbidden: tokens that are never chosen (padding, start, unknown).
    repeat_distance: a token is blocked for this many tokens after it. 0 blocks none.
    repeatable: tokens exempt from `repeat_distance` (articles, prepositions).

    Raises `UserError` for lengths, an n or a distance out of range.
    """

    minimum_length: int = 0
    maximum_length: int = 50
    block_ngrams: int = 0
    forbidden: tuple[int, ...] = ()
    repeat_distance: int = 0
    repeatable: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.maximum_length < 1:
            raise UserError(f"maximum length {self.maximum_length} is not at least 1")
        if not 0 <= self.minimum_length <= self.maximum_length:
            raise UserError(
                f"minimum length {self.minimum_length} is not between 0 and the maximum length, "
                f"{self.maximum_length}"
            )
        if self.block_ngrams < 0:
            raise UserError(f"length {self.block_ngrams} of blocked n-grams is negative")
        if self.repeat_distance < 0:
            raise UserError(f"repeat distance {self.repeat_distance} is negative")

    def apply(self, log_probabilities: Tensor, history: Tensor, end: int) -> Tensor:
        """Log-probabilities (B, K, V) and tokens so far (B, K, t) -> (B, K, V), blocked at -inf.

        A row with every token blocked may end: its end token keeps its log-probability, but at
        least `IMPOSSIBLE`. So every row has a token left.
        """
        length = history.shape[-1]
        ending = log_probabilities[..., end].clamp(min=IMPOSSIBLE)  # (B, K)
        allowed = log_probabilities.clone()  # (B, K, V)
        if length >= self.maximum_length:
            allowed.fill_(BLOCKED)
            allowed[..., end] = ending
            return allowed
        if self.forbidden:
            allowed.index_fill_(-1, _on_device(self.forbidden, allowed.device), BLOCKED)
        if length < self.minimum_length:
            allowed[..., end] = BLOCKED
        if self.block_ngrams:
            self._block_ngrams(allowed, history)
        if self.repeat_distance and length:
            self._block_repeats(allowed, history)
        nothing_left = allowed.amax(dim=-1) == BLOCKED  # (B, K)
        allowed[..., end] = torch.where(nothing_left, ending, allowed[..., end])
        return allowed

    def _block_repeats(self, allowed: Tensor, history: Tensor) -> None:
        """Block the last `repeat_distance` tokens of each row, except `repeatable` ones."""
        recent = history[..., -self.repeat_distance :]  # (B, K, at most repeat_distance)
        blocked = torch.zeros_like(allowed, dtype=torch.bool).scatter_(-1, recent, True)
        blocked.index_fill_(-1, _on_device(self.repeatable, blocked.device), False)
        allowed.masked_fill_(blocked, BLOCKED)

    def _block_ngrams(self, allowed: Tensor, history: Tensor) -> None:
        """Block tokens that complete an n-gram already in their row's history."""
        n, length = self.block_ngrams, history.shape[-1]
        if length < n:
            return
        windows = history.unfold(-1, n, 1)  # (B, K, t - n + 1, n)
        context = history[..., length - n + 1 :]  # (B, K, n - 1), the last n - 1 tokens
        repeats = (windows[..., : n - 1] == context.unsqueeze(-2)).all(dim=-1)  # (B, K, t - n + 1)
        counts = torch.zeros_like(allowed)  # (B, K, V)
        counts.scatter_add_(-1, windows[..., n - 1], repeats.to(counts.dtype))
        allowed.masked_fill_(counts > 0, BLOCKED)


def _on_device(tokens: tuple[int, ...], device: torch.device) -> Tensor:
    """Tokens as a tensor (N,). As an index, a list waits for a GPU."""
    return torch.tensor(tokens, dtype=torch.long).to(device, non_blocking=True)  # (N,)
