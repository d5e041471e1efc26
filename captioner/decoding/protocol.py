"""The protocol of decoders and their states."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from captioner.attention.memory import Memory

State = Any
"""A decoder's: a nested tuple of tensors (B, K, ...), a row for each hypothesis, and of memories.

Memories stay (B, ...): the hypotheses of a beam share that of their source without a copy."""


class Step(NamedTuple):
    """One step of a decoder for K rows (hypotheses) of each of B sources.

    logits: (B, K, V), unnormalised scores of the next token.
    state: the decoder's state after the given tokens.
    weights: (B, K, L), the attention behind these logits: the map of the token chosen from them.
    """

    logits: Tensor
    state: State
    weights: Tensor


class TeacherForced(NamedTuple):
    """A decoder's output for given sequences, fed with their tokens.

    logits: (B, K, T, V). weights: (B, K, T, L). log_probability: (B, K, T), of the positions drawn
    by hard attention, and entropy: (B, K, T), of their distribution, in nats; None for soft.
    """

    logits: Tensor
    weights: Tensor
    log_probability: Tensor | None = None
    entropy: Tensor | None = None


class Decoder(Protocol):
    """The protocol of every caption and translation decoder."""

    @abstractmethod
    def start(self, memory: Memory) -> State:
        """A memory of B sources -> a state with one row for each, (B, 1, ...)."""

    @abstractmethod
    def step(self, tokens: Tensor, state: State) -> Step:
        """The last tokens (B, K) and the state before them -> logits, state and weights."""


class SequenceDecoder(nn.Module, Decoder):
    """A decoder that runs over whole sequences; a step is a sequence of one token."""

    @abstractmethod
    def run(self, tokens: Tensor, state: State) -> tuple[TeacherForced, State]:
        """Input tokens (B, K, T) and the state before them -> outputs and the state after them."""

    def step(self, tokens: Tensor, state: State) -> Step:
        """Last tokens (B, K) and the state before them -> logits, state and weights."""
        outputs, state = self.run(tokens.unsqueeze(-1), state)  # T = 1
        return Step(outputs.logits.squeeze(2), state, outputs.weights.squeeze(2))

    def forward(self, memory: Memory, tokens: Tensor) -> TeacherForced:
        """Teacher forcing: input tokens (B, K, T), `<start>` first; equal to T calls of `step`."""
        state = select_rows(self.start(memory), tokens.new_zeros(tokens.shape[:2]))
        return self.run(tokens, state)[0]


def map_state(
    state: State,
    of_rows: Callable[[Tensor], Tensor],
    of_memory: Callable[[Memory], Memory] = lambda memory: memory,
) -> State:
    """Apply a function to every tensor (B, K, ...) of a state, and one to every memory."""
    if isinstance(state, Memory):
        return of_memory(state)
    if isinstance(state, Tensor):
        return of_rows(state)
    parts = [map_state(part, of_rows, of_memory) for part in state]
    return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)


def select_rows(state: State, rows: Tensor) -> State:
    """Select rows (B, K'), indices into each source's K, of a state; memories stay shared."""
    sources = torch.arange(rows.shape[0], device=rows.device).unsqueeze(1)  # (B, 1)
    return map_state(state, lambda tensor: tensor[sources, rows])  # (B, K', ...)


def select_sources(state: State, sources: Tensor) -> State:
    """Select sources (B',), indices into B, of a state."""
    return map_state(
        state,
        lambda tensor: tensor.index_select(0, sources),  # (B', ...)
        lambda memory: memory.select(sources),
    )
