"""Strategies that choose the next tokens: beam search (greedy with a beam of 1) and sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from captioner.attention import draw


class Choice(NamedTuple):
    """Rows that continue, and their tokens: all (B, K')."""

    parents: Tensor
    """(B, K') the old row that each new row continues, an index into K."""
    tokens: Tensor
    """(B, K') its next token."""
    live: Tensor
    """(B, K') boolean, False for padding rows."""


@dataclass(frozen=True)
class BeamSearch:
    """Keeps the K most probable partial hypotheses of each source.

    A hypothesis that ends leaves the beam, which narrows by one until all K have ended, as in the
    search of Xu et al. 2015. A beam of 1 is greedy search. Graves 2012, *Sequence Transduction with
    Recurrent Neural Networks*, algorithm 1; Sutskever et al. 2014, section 3.2.

    width: K, the number of hypotheses of a source.
    """

    width: int = 5
    narrows: ClassVar[bool] = True
    """Whether rows that have ended may be left out; draws depend on the number of rows."""

    def choose(self, totals: Tensor, steps: Tensor, live: Tensor, ended: Tensor) -> Choice:
        """Choose the most probable continuations.

        totals: (B, K), log-probability of each row so far.
        steps: (B, K, V), log-probability of each next token; -inf where blocked.
        live: (B, K) boolean, rows that have not ended.
        ended: (B,), the number of ended hypotheses of each source.
        """
        vocabulary_size = steps.shape[-1]
        totals = totals.masked_fill(~live, float("-inf"))
        # At most this many of a row are among the best of all rows.
        row_best, tokens = steps.topk(min(self.width, vocabulary_size), dim=-1)  # (B, K, k)
        candidates = (totals.unsqueeze(-1) + row_best).flatten(start_dim=1)  # (B, K * k)
        keep = min(self.width, candidates.shape[-1])
        best, index = candidates.topk(keep, dim=-1)  # (B, K')
        rank = torch.arange(keep, device=best.device)  # (K')
        free = (self.width - ended).unsqueeze(-1)  # (B, 1)
        return Choice(
            parents=index // row_best.shape[-1],
            tokens=tokens.flatten(start_dim=1).gather(1, index),
            live=(rank < free) & (best > float("-inf")),
        )


@dataclass(frozen=True)
class Sampling:
    """Draws each next token from the model's distribution.

    generator: the source of randomness. width: independent samples of a source.
    temperature: divides the logits; below 1 sharpens, above 1 flattens.
    top_k: keeps the k most probable tokens; 0 keeps all.
    top_p: keeps the fewest tokens whose probabilities sum to at least p (Holtzman et al. 2020,
        *The Curious Case of Neural Text Degeneration*, equation 2).
    """

    generator: torch.Generator
    width: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    narrows: ClassVar[bool] = False

    def choose(self, totals: Tensor, steps: Tensor, live: Tensor, ended: Tensor) -> Choice:
        """Draw a token for each row; the first step copies one row to all `width`.

        Arguments as of `BeamSearch.choose`.
        """
        batch_size, rows, _ = steps.shape
        parents = torch.arange(rows, device=steps.device).expand(batch_size, rows)  # (B, K)
        if rows < self.width:
            parents = parents.new_zeros(batch_size, self.width)
            steps = steps.expand(-1, self.width, -1)  # (B, width, V)
        return Choice(
            parents=parents,
            tokens=draw(self.distribution(steps), self.generator),
            live=live.gather(1, parents),
        )

    def distribution(self, steps: Tensor) -> Tensor:
        """Log-probabilities (..., V) -> the probabilities (..., V) of the draw."""
        steps = steps.float()
        numbers = torch.finfo(steps.dtype)
        temperature = min(max(self.temperature, numbers.tiny), numbers.max)
        logits = (steps - steps.amax(dim=-1, keepdim=True)) / temperature  # 0 at the highest
        size = logits.shape[-1]
        kept = min(self.top_k, size) or size  # k
        if kept == size and self.top_p == 1:
            return torch.softmax(logits, dim=-1)
        ordered, order = logits.topk(kept, dim=-1)  # (..., k)
        probabilities = torch.softmax(ordered, dim=-1)  # (..., k), falling
        if self.top_p < 1:
            before = probabilities.cumsum(dim=-1).roll(1, dims=-1)  # mass ahead of each token
            before[..., 0] = -1.0  # The first is kept, also at a p that float32 rounds to 0.
            probabilities = probabilities.masked_fill(before >= self.top_p, 0.0)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, order, probabilities)


Strategy = BeamSearch | Sampling
