"""The one decoder loop, for captions and translations, with its strategies and its ranking."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from captioner.attention.memory import Memory
from captioner.attention.selection import draw
from captioner.decoding.constraints import Constraints
from captioner.decoding.protocol import Decoder, Hypothesis, select_rows, select_sources
from captioner.errors import UserError


class Choice(NamedTuple):
    """The rows that continue, (B, K') each.

    parents: the old row that each continues, an index into K. tokens: its next token. live:
    boolean, False for padding rows.
    """

    parents: Tensor
    tokens: Tensor
    live: Tensor


@dataclass(frozen=True)
class BeamSearch:
    """Keeps the K (`width`) most probable partial hypotheses of each source.

    A hypothesis that ends leaves the beam, which narrows by one until all K have ended, as in the
    search of Xu et al. 2015. A beam of 1 is greedy search. Graves 2012, *Sequence Transduction with
    Recurrent Neural Networks*, algorithm 1; Sutskever et al. 2014, section 3.2.
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
        """As `BeamSearch.choose`, but draws; the first step copies one row to all `width`."""
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
    length_normalisation, coverage_penalty: alpha and beta of `_score`, by which finished hypotheses
        are ranked, not the partial ones in a beam.
    keep_attention: collect attention maps, which takes time; a coverage penalty needs them.

    Returns the hypotheses of each of the B sources, best score first but cut ones last: at least
    one, at most `strategy.width`. A source decodes alike alone and in a batch, up to rounding,
    except by sampling, where one generator serves the batch.
    """
    strategy, constraints = strategy or BeamSearch(), constraints or Constraints()
    batch_size, device = memory.batch_size, memory.values.device
    state = decoder.start(memory)
    tokens = torch.full((batch_size, 1), start, device=device)  # (B, 1)
    history = tokens.new_empty(batch_size, 1, 0)  # (B, 1, 0)
    totals = torch.zeros(batch_size, 1, device=device)  # (B, 1)
    live = torch.ones(batch_size, 1, dtype=torch.bool, device=device)  # (B, 1)
    ended = torch.zeros(batch_size, dtype=torch.long, device=device)  # (B,)
    sources = torch.arange(batch_size, device=device)  # (B,)
    places = torch.full_like(tokens, -1)  # (B, 1), where the record has each row's last token
    record: list[tuple[Tensor, ...]] = []
    size = 0  # Tokens in the record.
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
        weights = totals.new_empty(*tokens.shape, 0)  # (B, K', 0)
        if keep_attention or coverage_penalty > 0:
            weights = select_rows(step.weights, parents)  # (B, K', L)
        of_rows = sources.unsqueeze(1).expand_as(tokens)  # (B, K')
        record.append((places.gather(1, parents), tokens, ending, of_rows, terms, weights))
        places = torch.arange(size, size + tokens.numel(), device=device).view(tokens.shape)
        size += tokens.numel()
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
    alpha, beta = length_normalisation, coverage_penalty
    return _ranked(record, memory, constraints.maximum_length, alpha, beta)


def _ranked(
    record: list[tuple[Tensor, ...]], memory: Memory, longest: int, alpha: float, beta: float
) -> list[list[Hypothesis]]:
    """Build the hypotheses of each source of the memory, and rank them.

    record: of every step, for the tokens it chose, (B, K) each: the place of the parent, the token,
        whether it ends a hypothesis, its source and its log-probability; and its weights (B, K, L).
        A place counts the tokens of all steps. A hypothesis is the path from its end token back to
        a token without a parent (-1).
    """
    *columns, numbers, maps = (
        torch.cat([each.flatten(end_dim=1) for each in column])
        for column in zip(*record, strict=True)
    )
    parents, tokens, ending, sources = torch.stack([each.long() for each in columns]).tolist()
    numbers = torch.cat([numbers.unsqueeze(1), maps], dim=1).cpu()  # (N, 1 + L)
    terms, weights = numbers[:, 0].tolist(), numbers[:, 1:]  # weights (N, L) or (N, 0)
    mask = torch.ones(memory.values.shape[:2]) if memory.mask is None else memory.mask  # (B, L)
    mask = mask.bool().cpu()
    ranked: list[list[Hypothesis]] = [[] for _ in range(memory.batch_size)]
    for last in (place for place, is_end in enumerate(ending) if is_end):
        path = [last]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        path.reverse()
        path_terms = [terms[place] for place in path]
        source, attention, total = sources[last], weights[path], sum(path_terms)
        hypothesis = Hypothesis(
            tokens=[tokens[place] for place in path[:-1]],
            log_probability=total,
            token_log_probabilities=path_terms,
            score=_score(total, attention, mask[source], alpha, beta),
            attention=attention[:-1],  # (T, L) or (T, 0), without the end token
            cut=len(path) > longest and path_terms[-1] < math.log(0.5),
        )
        ranked[source].append(hypothesis)
    for hypotheses in ranked:
        hypotheses.sort(key=lambda hypothesis: (hypothesis.cut, -hypothesis.score))
    return ranked


def _score(total: float, attention: Tensor, mask: Tensor, alpha: float, beta: float) -> float:
    """The score by which hypotheses are ranked: Wu et al. 2016, equation 14 (GNMT).

    log P / ((5 + T) / 6) ** alpha + beta * sum_i log(min(sum_t p_ti, 1))

    total: log P, divided so that longer hypotheses are not ranked lower; alpha = 0 changes nothing,
        0.6 to 1 are common.
    attention: p (T, L), the end token's last. A position with a total of 1 or more adds nothing, a
        neglected one lowers the score; beta is 0.2 in the paper.
    mask: (L,) boolean, False for padding, which is left out.
    """
    score = float(total / ((5 + len(attention)) / 6) ** alpha)
    if beta == 0:
        return score
    received = attention.sum(dim=0)[mask]  # At most (L,)
    return score + beta * float(received.clamp(1e-10, 1.0).log().sum())  # Not log(0).
