"""The one decoder loop, for captions and translations: greedy, beam search and sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from captioner.attention import Memory
from captioner.decoding.constraints import Constraints
from captioner.decoding.protocol import Decoder, Hypothesis
from captioner.decoding.ranking import coverage_score, length_normalised
from captioner.decoding.rows import select_rows, select_sources
from captioner.decoding.strategies import BeamSearch, Strategy
from captioner.errors import UserError


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
    length_normalisation, coverage_penalty: alpha and beta of `captioner.decoding.ranking`, by
        which finished hypotheses are ranked, not the partial ones in a beam.
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
        if strategy.narrows and max(live_counts) < live.shape[1]:
            # Rows that have ended are not computed any more.
            first = live.int().argsort(dim=1, descending=True, stable=True)[:, : max(live_counts)]
            parents, tokens, terms, live, places = (
                each.gather(1, first) for each in (parents, tokens, terms, live, places)
            )  # (B, K'') each, from here on (B, K')
        totals = totals.gather(1, parents) + terms  # (B, K')
        past = select_rows(history, parents)  # (B, K', t)
        history = torch.cat([past, tokens.unsqueeze(-1)], dim=-1)  # (B, K', t + 1)
        state = decoder.select(step.state, parents)
        if strategy.narrows and 2 * live_counts.count(0) >= len(live_counts):
            # Drop ended sources once half have ended: the copy is at most half the memory.
            kept = torch.tensor([index for index, rows in enumerate(live_counts) if rows])
            kept = kept.to(device, non_blocking=True)  # (B',)
            state, tokens, live, places, totals, history, ended, sources = select_sources(
                (state, tokens, live, places, totals, history, ended, sources), kept
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
