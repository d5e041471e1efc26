"""How the next tokens are chosen: beam search, of which greedy is the narrowest, and sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from captioner.errors import UserError


class Choice(NamedTuple):
    """Which rows go on, and with which token: all (B, K')."""

    parents: Tensor
    """(B, K') row each new row continues, an index into the K old ones."""
    tokens: Tensor
    """(B, K') the token it continues with."""
    live: Tensor
    """(B, K') boolean: False for a row that only fills the rectangle."""


class Strategy(Protocol):
    """Chooses among the continuations of the live rows."""

    @property
    def width(self) -> int:
        """K, how many hypotheses of a source are wanted."""
        ...

    def choose(self, totals: Tensor, steps: Tensor, live: Tensor, ended: Tensor) -> Choice:
        """Choose the next rows.

        totals: (B, K), log-probability of each row so far.
        steps: (B, K, V), log-probability of each next token; -inf where blocked.
        live: (B, K) boolean, rows that may go on.
        ended: (B,), how many hypotheses of each source have ended before.
        """
        ...


@dataclass(frozen=True)
class BeamSearch:
    """Keeps the K most probable partial hypotheses of each source.

    A hypothesis that ends leaves the beam and takes its place with it, as in the search of Xu et
    al. 2015: the beam narrows until all K have ended. So a beam of 1 is greedy search, and a beam
    as wide as the space of sequences is exhaustive. Graves 2012, *Sequence Transduction with
    Recurrent Neural Networks*, algorithm 1; Sutskever et al. 2014, section 3.2.

    Raises `UserError` for a width below 1.
    """

    width: int = 5

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UserError(f"beam size {self.width} is not at least 1")

    def choose(self, totals: Tensor, steps: Tensor, live: Tensor, ended: Tensor) -> Choice:
        """The most probable continuations, as many as places are left; see `Strategy.choose`."""
        vocabulary_size = steps.shape[-1]
        totals = totals.masked_fill(~live, float("-inf"))
        # No more than this many of a row can be among the best of all.
        of_row, tokens = steps.topk(min(self.width, vocabulary_size), dim=-1)  # (B, K, k)
        candidates = (totals.unsqueeze(-1) + of_row).flatten(start_dim=1)  # (B, K * k)
        keep = min(self.width, candidates.shape[-1])
        best, index = candidates.topk(keep, dim=-1)  # (B, K')
        rank = torch.arange(keep, device=best.device)  # (K')
        free = (self.width - ended).unsqueeze(-1)  # (B, 1)
        return Choice(
            parents=index // of_row.shape[-1],
            tokens=tokens.flatten(start_dim=1).gather(1, index),
            live=(rank < free) & (best > float("-inf")),
        )


@dataclass(frozen=True)
class Sampling:
    """Draws each next token from the model's distribution.

    width: how many sequences are drawn for a source, independently.
    generator: where randomness comes from.
    temperature: logits are divided by it; below 1 sharper, above 1 flatter.
    top_k: only the k most probable tokens are left; 0 leaves all.
    top_p: only the fewest tokens whose probabilities sum to at least p are left
        (Holtzman et al. 2020, *The Curious Case of Neural Text Degeneration*, equation 2).

    Raises `UserError` for values out of range.
    """

    generator: torch.Generator
    width: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if self.width < 1:
            raise UserError(f"number of samples {self.width} is not at least 1")
        if not 0 < self.temperature < float("inf"):
            raise UserError(f"temperature {self.temperature} is not a number above 0")
        if self.top_k < 0:
            raise UserError(f"top-k {self.top_k} is negative")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top-p {self.top_p} is not above 0 and at most 1")

    def choose(self, totals: Tensor, steps: Tensor, live: Tensor, ended: Tensor) -> Choice:
        """One draw a row; see `Strategy.choose`. The first step widens one row to all."""
        batch_size, rows, _ = steps.shape
        parents = torch.arange(rows, device=steps.device).expand(batch_size, rows)  # (B, K)
        if rows < self.width:
            parents = parents.new_zeros(batch_size, self.width)
        probabilities = self.distribution(steps)  # (B, K, V)
        if rows < self.width:
            probabilities = probabilities[:, :1].expand(-1, self.width, -1)  # (B, width, V)
        flat = probabilities.flatten(end_dim=1).to(self.generator.device)  # (B * width, V)
        drawn = torch.multinomial(flat, num_samples=1, generator=self.generator)
        return Choice(
            parents=parents,
            tokens=drawn.view(parents.shape).to(steps.device),
            live=live.gather(1, parents),
        )

    def distribution(self, steps: Tensor) -> Tensor:
        """Log-probabilities (..., V) -> the probabilities (..., V) that are drawn from."""
        steps = steps.float()
        numbers = torch.finfo(steps.dtype)
        temperature = min(max(self.temperature, numbers.tiny), numbers.max)
        logits = (steps - steps.amax(dim=-1, keepdim=True)) / temperature  # 0 at the highest
        size = logits.shape[-1]
        left = min(self.top_k, size) or size  # k, how many tokens top-k leaves
        if left == size and self.top_p == 1:
            return torch.softmax(logits, dim=-1)
        if left < size:
            ordered, order = logits.topk(left, dim=-1)  # (..., k)
        else:
            ordered, order = logits.sort(dim=-1, descending=True)  # (..., V)
        probabilities = torch.softmax(ordered, dim=-1)  # (..., k), falling
        if self.top_p < 1:
            before = probabilities.cumsum(dim=-1).roll(1, dims=-1)  # mass ahead of each token
            before[..., 0] = 0.0
            probabilities = probabilities.masked_fill(before >= self.top_p, 0.0)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, order, probabilities)
