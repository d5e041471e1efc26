"""The one decoder loop, for captions and translations, with its strategies and its ranking.

Beam search (greedy with a beam of 1) and sampling. Finished hypotheses are ranked by the length
normalisation and the coverage penalty of GNMT.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from captioner.attention.memory import Memory
from captioner.attention.selection import draw
from captioner.decoding.constraints import Constraints
from captioner.decoding.protocol import Decoder, Hypothesis, select_rows, select_sources
from captioner.errors import UserError


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
    drops_finished: ClassVar[bool] = True
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
    drops_finished: ClassVar[bool] = False

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
        limits = torch.finfo(steps.dtype)
        temperature = min(max(self.temperature, limits.tiny), limits.max)
        logits = (steps - steps.amax(dim=-1, keepdim=True)) / temperature  # 0 at the highest
        size = logits.shape[-1]
        count = min(self.top_k, size) or size  # k
        if count == size and self.top_p == 1:
            return torch.softmax(logits, dim=-1)
        ordered, order = logits.topk(count, dim=-1)  # (..., k)
        probabilities = torch.softmax(ordered, dim=-1)  # (..., k), falling
        if self.top_p < 1:
            before = probabilities.cumsum(dim=-1).roll(1, dims=-1)  # mass ahead of each token
            before[..., 0] = -1.0  # The first is kept, also at a p that float32 rounds to 0.
            probabilities = probabilities.masked_fill(before >= self.top_p, 0.0)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, order, probabilities)


Strategy = BeamSearch | Sampling


@torch.no_grad()
def decode(
    decoder: Decoder,
    memory: Memory,
    *,
    start: int,
    end: int,
    strategy: Strategy | None = None,
    constraints: Constraints | None = None,
    length_normalisation: float = 0.0,
    coverage_penalty: float = 0.0,
    keep_attention: bool = True,
) -> list[list[Hypothesis]]:
    """Decode all sources of a memory in one batch.

    start, end: the tokens that begin and end a sequence.
    strategy: chooses tokens; a beam of 5 by default.
    length_normalisation, coverage_penalty: alpha of `length_normalised` and beta of
        `coverage_score`, by which finished hypotheses are ranked, not the partial ones in a beam.
    keep_attention: collect the attention maps of hypotheses, which takes time.
    The ranges of the options are those of `SearchOptions`, which checks them.

    Returns the hypotheses of each of the B sources, best score first but cut ones last: at least
    one, at most `strategy.width`. A source decodes alike alone and in a batch, up to rounding,
    except by sampling, where one generator serves the batch.
    Raises `UserError` when the model's output is NaN.
    """
    strategy = BeamSearch() if strategy is None else strategy
    constraints = Constraints() if constraints is None else constraints
    needs_attention = keep_attention or coverage_penalty > 0
    batch_size, device = memory.batch_size, memory.values.device
    state = decoder.start(memory)
    tokens = torch.full((batch_size, 1), start, device=device)  # (B, 1)
    history = tokens.new_empty(batch_size, 1, 0)  # (B, 1, 0)
    totals = torch.zeros(batch_size, 1, device=device)  # (B, 1)
    live = torch.ones(batch_size, 1, dtype=torch.bool, device=device)  # (B, 1)
    ended = torch.zeros(batch_size, dtype=torch.long, device=device)  # (B,)
    sources = torch.arange(batch_size, device=device)  # (B,)
    places = torch.full_like(tokens, -1)  # (B, 1), where the record has each row's last token
    record = _Record()
    for _ in range(constraints.maximum_length + 1):
        step = decoder.step(tokens, state)
        log_probabilities = torch.log_softmax(step.logits.float(), dim=-1)  # (B, K, V)
        # One NaN among the logits makes its whole row NaN.
        is_nan = log_probabilities[..., end].isnan().any()
        constraints.block(log_probabilities, history, end)
        parents, tokens, live = strategy.choose(totals, log_probabilities, live, ended)  # (B, K')
        chosen = parents * log_probabilities.shape[-1] + tokens  # (B, K'), into K * V
        terms = log_probabilities.flatten(start_dim=1).gather(1, chosen)  # (B, K')
        ending = live & (tokens == end)  # (B, K')
        weights = select_rows(step.weights, parents) if needs_attention else None  # (B, K', L)
        places = record.append(places.gather(1, parents), tokens, terms, ending, sources, weights)
        ended = ended + ending.sum(dim=-1)  # (B,)
        live = live & ~ending
        # The only values that a step reads.
        has_failed, *live_counts = torch.cat([is_nan.view(1), live.sum(dim=-1)]).tolist()
        if has_failed:
            raise UserError("the model's output is not a number; its weights are damaged")
        if not any(live_counts):
            break
        if strategy.drops_finished and max(live_counts) < live.shape[1]:
            # Rows that have ended are not computed any more.
            first = live.int().argsort(dim=1, descending=True, stable=True)[:, : max(live_counts)]
            parents, tokens, terms, live, places = (
                each.gather(1, first) for each in (parents, tokens, terms, live, places)
            )  # (B, K'') each, from here on (B, K')
        totals = totals.gather(1, parents) + terms  # (B, K')
        past = select_rows(history, parents)  # (B, K', t)
        history = torch.cat([past, tokens.unsqueeze(-1)], dim=-1)  # (B, K', t + 1)
        state = select_rows(step.state, parents)
        if strategy.drops_finished and 2 * live_counts.count(0) >= len(live_counts):
            # Drop ended sources once half have ended: the copy is at most half the memory.
            unfinished = torch.tensor([index for index, rows in enumerate(live_counts) if rows])
            unfinished = unfinished.to(device, non_blocking=True)  # (B',)
            state, tokens, live, places, totals, history, ended, sources = select_sources(
                (state, tokens, live, places, totals, history, ended, sources), unfinished
            )  # (B', ...) each, from here on (B, ...)
    return record.hypotheses(
        memory,
        strategy.width,
        constraints.maximum_length,
        length_normalisation,
        coverage_penalty,
        keep_attention,
    )


@dataclass
class _Record:
    """The tokens that every step chose, concatenated, each with the place of its parent.

    A hypothesis is the path from its end token back to a token without a parent (-1).
    """

    parents: list[Tensor] = field(default_factory=list)
    tokens: list[Tensor] = field(default_factory=list)
    terms: list[Tensor] = field(default_factory=list)
    ending: list[Tensor] = field(default_factory=list)
    sources: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)  # Empty where attention is not needed.
    size: int = 0

    def append(
        self,
        parents: Tensor,
        tokens: Tensor,
        terms: Tensor,
        ending: Tensor,
        sources: Tensor,
        weights: Tensor | None,
    ) -> Tensor:
        """Add a step, (B, K) each, of sources (B,), with weights (B, K, L): the places (B, K)."""
        self.parents.append(parents.flatten())
        self.tokens.append(tokens.flatten())
        self.terms.append(terms.flatten())
        self.ending.append(ending.flatten())
        self.sources.append(sources.repeat_interleave(tokens.shape[1]))
        if weights is not None:
            self.weights.append(weights.flatten(end_dim=1))  # (B * K, L)
        places = torch.arange(self.size, self.size + tokens.numel(), device=tokens.device)
        self.size += tokens.numel()
        return places.view(tokens.shape)

    def hypotheses(
        self,
        memory: Memory,
        width: int,
        maximum_length: int,
        alpha: float,
        beta: float,
        keep_attention: bool,
    ) -> list[list[Hypothesis]]:
        """Build and rank the hypotheses of each source of the memory."""
        columns = (self.parents, self.tokens, self.sources, self.ending)
        parents, tokens, sources, ending = torch.stack(
            [torch.cat(steps).long() for steps in columns]
        ).tolist()
        numbers = torch.cat(self.terms).unsqueeze(1)  # (N, 1)
        if self.weights:
            numbers = torch.cat([numbers, torch.cat(self.weights)], dim=1)  # (N, 1 + L)
        numbers = numbers.cpu()
        terms, weights = numbers[:, 0].tolist(), numbers[:, 1:]  # weights (N, L) or (N, 0)
        mask = None if memory.mask is None else memory.mask.cpu()
        ranked: list[list[Hypothesis]] = [[] for _ in range(memory.batch_size)]
        for last in (place for place, is_end in enumerate(ending) if is_end):
            path = [last]
            while parents[path[-1]] >= 0:
                path.append(parents[path[-1]])
            path.reverse()
            path_terms = [terms[place] for place in path]
            attention = weights[path]  # (T, L), or (T, 0)
            total = sum(path_terms)
            score = length_normalised(total, len(path), alpha)
            if beta > 0:
                source_mask = None if mask is None else mask[sources[last]]  # (L,)
                score += coverage_score(attention, beta, source_mask)
            hypothesis = Hypothesis(
                tokens=[tokens[place] for place in path[:-1]],
                log_probability=total,
                token_log_probabilities=path_terms,
                score=score,
                # (T, L) or (T, 0), without the end token
                attention=attention[:-1] if keep_attention else torch.empty(len(path) - 1, 0),
                cut=len(path) > maximum_length and path_terms[-1] < math.log(0.5),
            )
            ranked[sources[last]].append(hypothesis)
        for hypotheses in ranked:
            hypotheses.sort(key=lambda hypothesis: (hypothesis.cut, -hypothesis.score))
        return [hypotheses[:width] for hypotheses in ranked]


_FLOOR = 1e-10
"""Floor on the attention mass of a position; avoids log(0)."""


def length_normalised(log_probability: float, length: int, alpha: float) -> float:
    """A log-probability divided by ((5 + length) / 6) ** alpha: longer hypotheses have lower ones.

    Wu et al. 2016, equation 14 (GNMT); not length ** alpha. The length counts the end token.
    alpha = 0 changes nothing; 0.6 to 1 are common.
    """
    return float(log_probability / ((5 + length) / 6) ** alpha)


def coverage_score(attention: Tensor, beta: float, mask: Tensor | None = None) -> float:
    """beta * sum_i log(min(sum_t p_ti, 1)), of attention p (T, L), in nats: at most 0.

    A position with a total of 1 or more adds nothing; a neglected one lowers the score. Wu et al.
    2016, equation 14 (GNMT), added after length normalisation; beta is 0.2 in the paper. The end
    token's step counts. mask: (L,) boolean, False for padding, which is left out.
    """
    received = attention.sum(dim=0)  # (L,)
    if mask is not None:
        received = received[mask]
    return beta * float(received.clamp(_FLOOR, 1.0).log().sum())
