"""What a model must offer to be decoded, and what decoding gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from torch import Tensor

from captioner.attention import Memory

State = TypeVar("State")


class Step(NamedTuple):
    """One step of a decoder for K rows (hypotheses) of each of B sources.

    logits: (B, K, V), unnormalised scores of the next token.
    state: the decoder's state after the tokens it was given.
    weights: (B, K, L), the attention with which these logits were computed: the map that belongs
        to the token chosen from them.
    """

    logits: Tensor
    state: object
    weights: Tensor


class Decoder(Protocol):
    """The protocol every caption and translation decoder follows.

    Rows are kept apart from sources: states and tokens are (B, K, ...), the memory stays (B, ...),
    so the hypotheses of a beam share the memory of their source without copying it.
    """

    def start(self, memory: Memory) -> object:
        """A memory of B sources -> the state of one row for each, (B, 1, ...)."""
        ...

    def step(self, tokens: Tensor, state: object) -> Step:
        """The last tokens (B, K) and the state before them -> logits, state and weights."""
        ...

    def select(self, state: object, rows: Tensor) -> object:
        """The state of the given rows: rows (B, K') index the K rows of each source."""
        ...


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One decoded sequence.

    tokens: the T tokens after the start token, without the end token. Every hypothesis has ended.
    log_probability: natural logarithm of the probability of the tokens and of the end token
        behind them, under the model itself: temperature 1, nothing blocked.
    token_log_probabilities: its T + 1 terms.
    score: what hypotheses are ranked by: the log-probability after length normalisation, and the
        coverage penalty added.
    attention: (T, L) on the CPU, float32; row t is the attention with which token t was emitted.
        (T, 0) where `decode` was told not to keep it.
    """

    tokens: list[int]
    log_probability: float
    token_log_probabilities: list[float]
    score: float
    attention: Tensor
