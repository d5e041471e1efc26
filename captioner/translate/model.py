"""The base class of translation models, for training and for the decoder loop."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from captioner.attention import Memory
from captioner.decoding import Step, select_rows
from captioner.translate.embeddings import Embeddings


class TeacherForced(NamedTuple):
    """Outputs of a model under teacher forcing.

    logits: (B, K, T, V). weights: (B, K, T, L), the attention at each step.
    """

    logits: Tensor
    weights: Tensor


class TranslationModel(nn.Module):
    """Encoder, memory and decoder; implements `captioner.decoding.Decoder`.

    A subclass implements `remember`, `start` and `run`. Its state is a NamedTuple of tensors
    (B, K, ...), or tuples of them, and of `memory`, which all K rows share.
    """

    embeddings: Embeddings

    def remember(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        """Encode source tokens (B, S), `<end>` last, with their mask (B, S), as a memory.

        The mask is boolean and False at padding, which follows the tokens; None means no padding.
        It may stay on the CPU: recurrent encoders read lengths from it, which waits for a GPU.
        A source without tokens is an error.
        """
        raise NotImplementedError

    def start(self, memory: Memory) -> Any:
        """Memory of B sources -> initial state of one row each, (B, 1, ...)."""
        raise NotImplementedError

    def run(self, tokens: Tensor, state: Any) -> tuple[TeacherForced, Any]:
        """Input tokens (B, K, T) and the state before them -> outputs and the state after them.

        What does not depend on the previous step is computed for all steps together.
        """
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> Step:
        """Last tokens (B, K) and the state before them -> logits, state and weights."""
        outputs, state = self.run(tokens.unsqueeze(-1), state)  # T = 1
        return Step(outputs.logits.squeeze(2), state, outputs.weights.squeeze(2))

    def select(self, state: Any, rows: Tensor) -> Any:
        """Select rows (B, K') of each source's K; the memory is shared."""
        if isinstance(state, Memory):
            return state
        if isinstance(state, Tensor):
            return select_rows(state, rows)
        selected = [self.select(each, rows) for each in state]
        return type(state)(*selected) if hasattr(state, "_fields") else tuple(selected)

    def forward(self, memory: Memory, tokens: Tensor) -> TeacherForced:
        """Teacher forcing: input tokens (B, K, T), `<start>` first -> `TeacherForced`.

        Equal to T calls of `step`.
        """
        state = self.select(self.start(memory), tokens.new_zeros(tokens.shape[:2]))
        outputs, _ = self.run(tokens, state)
        return outputs


def stack_steps(steps: list[Tensor]) -> Tensor:
    """Stack the outputs (B, K, ...) of T steps to (B, K, T, ...)."""
    return torch.stack(steps, dim=2)  # (B, K, T, ...)
