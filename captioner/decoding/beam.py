"""The rows of a search, which it extends, narrows and ends at every step."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch
from torch import Tensor

from captioner.attention.memory import Memory
from captioner.decoding.protocol import select_rows, select_sources


class Choice(NamedTuple):
    """The rows that continue, (B, K') each.

    parents: the old row that each continues, an index into K. tokens: its next token. live:
    boolean, False for padding rows.
    """

    parents: Tensor
    tokens: Tensor
    live: Tensor


@dataclass(eq=False)
class Beam:
    """K rows (partial hypotheses) of each of B sources, as parallel tensors.

    state: the decoder's, before the last tokens. tokens: (B, K), the last one of each row.
    history: (B, K, t), its tokens so far. parents: (B, K), the row that it continued.
    totals: (B, K), its log-probability. live: (B, K) boolean, False once it has ended.
    nodes: (B, K), the number of its last token in the `TokenTree`; -1 before the first.
    ended: (B,), how many hypotheses of each source have ended. sources: (B,), indices into those
    of the memory; sources without live rows are dropped.
    """

    state: Any
    tokens: Tensor
    history: Tensor
    parents: Tensor
    totals: Tensor
    live: Tensor
    nodes: Tensor
    ended: Tensor
    sources: Tensor

    @classmethod
    def start(cls, memory: Memory, state: object, token: int) -> Beam:
        """One row a source, of the start token."""
        batch_size, device = memory.batch_size, memory.values.device
        tokens = torch.full((batch_size, 1), token, device=device)
        return cls(
            state=state,
            tokens=tokens,
            history=tokens.new_empty(batch_size, 1, 0),
            parents=torch.zeros_like(tokens),
            totals=torch.zeros(batch_size, 1, device=device),
            live=torch.ones_like(tokens, dtype=torch.bool),
            nodes=torch.full_like(tokens, -1),
            ended=torch.zeros_like(tokens[:, 0]),
            sources=torch.arange(batch_size, device=device),
        )

    def extend(self, choice: Choice, terms: Tensor) -> None:
        """Continue rows with the chosen tokens, of log-probabilities `terms` (B, K')."""
        self.parents, self.tokens, self.live = choice
        self.totals = self.totals.gather(1, choice.parents) + terms
        self.nodes = self.nodes.gather(1, choice.parents)  # The previous tokens.
        past = select_rows(self.history, choice.parents)  # (B, K', t)
        self.history = torch.cat([past, choice.tokens.unsqueeze(-1)], dim=-1)  # (B, K', t + 1)

    def end(self, token: int) -> Tensor:
        """End the live rows whose last token is this one; returns which, (B, K)."""
        is_end = self.live & (self.tokens == token)
        self.ended = self.ended + is_end.sum(dim=-1)
        self.live = self.live & ~is_end
        return is_end

    def narrow(self, width: int) -> None:
        """Keep `width` rows of each source, live ones first and otherwise in order."""
        if width == self.live.shape[1]:
            return
        rows = self.live.int().argsort(dim=1, descending=True, stable=True)[:, :width]
        self.history = select_rows(self.history, rows)
        for name in ("tokens", "parents", "totals", "live", "nodes"):
            setattr(self, name, getattr(self, name).gather(1, rows))

    def keep_sources(self, kept: Tensor) -> None:
        """Keep sources (B',), indices into B."""
        for field in fields(self):
            setattr(self, field.name, select_sources(getattr(self, field.name), kept))


class Nodes(NamedTuple):
    """The N tokens that steps chose, as the nodes of a tree, (N,) each.

    parents: the number of the node before each; -1 at the start. sources: indices into the
    memory's. tokens. is_end: whether the token ends a hypothesis. terms: its log-probability.
    weights: (N, L), its attention; (N, 0) if none is kept.
    """

    parents: Tensor
    sources: Tensor
    tokens: Tensor
    is_end: Tensor
    terms: Tensor
    weights: Tensor


class TokenTree:
    """The tokens that all steps chose, each a node behind the one that it continues."""

    def __init__(self) -> None:
        self._steps: list[Nodes] = []
        self._size = 0

    def add(self, beam: Beam, is_end: Tensor, terms: Tensor, weights: Tensor) -> Tensor:
        """Add the last tokens of an extended beam; returns the numbers of their nodes, (B, K).

        is_end, terms, weights: of `Nodes`, (B, K) and (B, K, L).
        """
        nodes = Nodes(
            parents=beam.nodes.flatten(),
            sources=beam.sources.unsqueeze(1).expand_as(beam.tokens).flatten(),
            tokens=beam.tokens.flatten(),
            is_end=is_end.flatten(),
            terms=terms.flatten(),
            weights=weights.flatten(end_dim=1),
        )
        self._steps.append(nodes)
        first = self._size
        self._size += terms.numel()
        return torch.arange(first, self._size, device=terms.device).view(terms.shape)

    def nodes(self) -> Nodes:
        """The nodes of all steps."""
        return Nodes(*(torch.cat(tensors) for tensors in zip(*self._steps, strict=True)))
