"""What every translation model offers, to training and to the decoder loop alike."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from captioner.attention import Attended, Memory
from captioner.decoding import Step, select_rows
from captioner.errors import UserError
from captioner.translate.embeddings import Embeddings


class TeacherForced(NamedTuple):
    """What a model says of given translations.

    logits: (B, K, T, V). weights: (B, K, T, L), the attention with which each was computed.
    """

    logits: Tensor
    weights: Tensor


class TranslationModel(nn.Module):
    """A reader and a writer with a memory between them; follows `captioner.decoding.Decoder`.

    The five methods below are all that a model has to have. A state keeps what belongs to rows as
    tensors (B, K, ...), in tuples or alone, in a NamedTuple whose field `memory` all rows share.
    """

    embeddings: Embeddings

    def remember(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        """Source tokens (B, S), `<end>` last, and their mask (B, S) -> what is to be attended.

        The mask is boolean, False for padding, which stands behind the tokens; None where there is
        no padding. Raises `UserError` for a source without tokens.
        """
        raise NotImplementedError

    def start(self, memory: Memory) -> Any:
        """A memory of B sources -> the state of one row for each, (B, 1, ...)."""
        raise NotImplementedError

    def step(self, tokens: Tensor, state: Any) -> Step:
        """The last tokens (B, K) and the state before them -> logits, state and weights."""
        raise NotImplementedError

    def select(self, state: Any, rows: Tensor) -> Any:
        """The state of rows (B, K') of each source's K; the memory stays as it is."""
        return type(state)(
            *(
                value if name in ("memory", "sources") else _selected(value, rows)
                for name, value in zip(state._fields, state, strict=True)
            )
        )

    def forward(self, memory: Memory, tokens: Tensor) -> TeacherForced:
        """Teacher forcing: the tokens fed in (B, K, T), `<start>` first -> `TeacherForced`.

        Equal to T calls of `step`, but what does not depend on the step before is computed for all
        steps at once. Raises `UserError` where there is no token to feed, T = 0.
        """
        raise NotImplementedError

    def start_rows(self, memory: Memory, tokens: Tensor) -> Any:
        """The state before the first of the tokens (B, K, T): `start`, in K rows.

        Raises `UserError` where there is no token to feed, T = 0.
        """
        if tokens.shape[-1] == 0:
            raise UserError(f"decoder: of tokens {tuple(tokens.shape)}, (B, K, T), T is 0")
        state = self.start(memory)
        if tokens.shape[1] == 1:
            return state
        return self.select(state, tokens.new_zeros(tokens.shape[:2]))


def _selected(value: Any, rows: Tensor) -> Any:
    if isinstance(value, tuple):
        return tuple(_selected(each, rows) for each in value)
    return select_rows(value, rows) if isinstance(value, Tensor) else value


def look_of_all_steps(attended: Attended, rows: int) -> tuple[Tensor, Tensor]:
    """A look with K * T queries a source -> contexts (B, K, T, D) and weights (B, K, T, L)."""
    context, weights = (
        each.view(each.shape[0], rows, -1, each.shape[-1])  # (B, K, T, .)
        for each in (attended.context, attended.weights)
    )
    return context, weights


def stacked(steps: list[Tensor]) -> Tensor:
    """What T steps gave, (B, K, ...) each -> (B, K, T, ...)."""
    return torch.stack(steps, dim=2)  # (B, K, T, ...)
