"""The one decoder loop, for captions and translations: greedy, beam search and sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from captioner.attention import Memory
from captioner.decoding.constraints import Constraints
from captioner.decoding.coverage import CoveragePenalty
from captioner.decoding.length import LengthNormalisation
from captioner.decoding.protocol import Decoder, Hypothesis
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
    length_normalisation: LengthNormalisation | None = None,
    keep_attention: bool = True,
    coverage_penalty: CoveragePenalty | None = None,
) -> list[list[Hypothesis]]:
    """Decode all sources of a memory in one batch.

    start, end: the tokens that begin and end a sequence.
    strategy: chooses tokens; a beam of 5 by default.
    length_normalisation, coverage_penalty: applied when finished hypotheses are ranked, not to
        the partial ones in a beam. Off by default.
    keep_attention: collect the attention maps of hypotheses, which takes time.

    Returns the hypotheses of each of the B sources, best score first but cut ones last: at least
    one, at most `strategy.width`. A source decodes alike alone and in a batch, except by sampling,
    where one generator serves the batch.
    Raises `UserError` when the model's output is NaN.
    """
    strategy = BeamSearch() if strategy is None else strategy
    constraints = Constraints() if constraints is None else constraints
    normalisation = LengthNormalisation() if length_normalisation is None else length_normalisation
    coverage = CoveragePenalty() if coverage_penalty is None else coverage_penalty
    needs_attention = keep_attention or coverage.beta > 0
    batch_size, device = memory.batch_size, memory.values.device
    state = decoder.start(memory)
    tokens = torch.full((batch_size, 1), start, device=device)  # (B, 1)
    history = tokens.new_empty(batch_size, 1, 0)  # (B, 1, 0)
    totals = torch.zeros(batch_size, 1, device=device)  # (B, 1)
    live = torch.ones(batch_size, 1, dtype=torch.bool, device=device)  # (B, 1)
    ended = torch.zeros(batch_size, dtype=torch.long, device=device)  # (B,)
    back_pointers = _BackPointers()
    for _ in range(constraints.maximum_length + 1):
        step = decoder.step(tokens, state)
        log_probabilities = torch.log_softmax(step.logits.float(), dim=-1)  # (B, K, V)
        allowed = constraints.apply(log_probabilities, history, end)  # (B, K, V)
        parents, tokens, live = strategy.choose(totals, allowed, live, ended)  # (B, K')
        chosen = parents * allowed.shape[-1] + tokens  # (B, K'), into the K * V continuations
        terms = allowed.flatten(start_dim=1).gather(1, chosen)  # (B, K')
        totals = totals.gather(1, parents) + terms  # (B, K')
        past = parents.unsqueeze(-1).expand(-1, -1, history.shape[-1])  # (B, K', t)
        history = history.gather(1, past)  # (B, K', t)
        history = torch.cat([history, tokens.unsqueeze(-1)], dim=-1)  # (B, K', t + 1)
        ending = live & (tokens == end)  # (B, K')
        weights = step.weights if needs_attention else None
        back_pointers.append(parents, tokens, terms, weights, ending)
        ended = ended + ending.sum(dim=-1)  # (B,)
        live = live & ~ending
        # One NaN among the logits makes its whole row NaN. The only values that a step reads.
        is_nan = log_probabilities[..., end].isnan().any()
        has_failed, is_live = torch.stack([is_nan, live.any()]).tolist()
        if has_failed:
            raise UserError("the model's output is not a number; its weights are damaged")
        if not is_live:
            break
        state = decoder.select(step.state, parents)
    ranked = back_pointers.hypotheses(
        normalisation, strategy.width, coverage, memory.mask, constraints.maximum_length
    )
    if keep_attention:
        return ranked
    return [list(map(_without_attention, each)) for each in ranked]


def greedy(
    decoder: Decoder,
    memory: Memory,
    *,
    start: int,
    end: int,
    constraints: Constraints | None = None,
) -> list[Hypothesis]:
    """Choose the most probable token at every step: a beam of 1. One hypothesis a source."""
    ranked = decode(
        decoder, memory, start=start, end=end, strategy=BeamSearch(1), constraints=constraints
    )
    return [hypotheses[0] for hypotheses in ranked]


def _without_attention(hypothesis: Hypothesis) -> Hypothesis:
    return replace(hypothesis, attention=torch.empty(len(hypothesis.tokens), 0))


def _fetch(steps: list[Tensor]) -> list[Tensor]:
    """Copy the tensors (B, K', ...) of all steps to the CPU at once."""
    if not steps:
        return []
    lengths = [step.shape[1] for step in steps]
    return list(torch.split(torch.cat(steps, dim=1).cpu(), lengths, dim=1))


@dataclass
class _BackPointers:
    """The choices of each step, followed back from the end tokens after the search."""

    parents: list[Tensor] = field(default_factory=list)
    tokens: list[Tensor] = field(default_factory=list)
    terms: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)  # Empty where attention is not needed.
    ending: list[Tensor] = field(default_factory=list)

    def append(
        self,
        parents: Tensor,
        tokens: Tensor,
        terms: Tensor,
        weights: Tensor | None,
        ending: Tensor,
    ) -> None:
        """Add a step. The weights (B, K, L) are of the parents; the rest is (B, K')."""
        self.parents.append(parents)
        self.tokens.append(tokens)
        self.terms.append(terms)
        if weights is not None:
            self.weights.append(weights)
        self.ending.append(ending)

    def hypotheses(
        self,
        normalisation: LengthNormalisation,
        width: int,
        coverage: CoveragePenalty,
        mask: Tensor | None,
        maximum_length: int,
    ) -> list[list[Hypothesis]]:
        """Build and rank the hypotheses of each source. mask: (B, L), of the memory."""
        parents, tokens, terms = (
            [step.tolist() for step in _fetch(steps)]
            for steps in (self.parents, self.tokens, self.terms)
        )
        weights = _fetch(self.weights)
        mask = None if mask is None else mask.cpu()
        ranked: list[list[Hypothesis]] = [[] for _ in parents[0]]
        for last, ending in enumerate(_fetch(self.ending)):
            for source, row in ending.nonzero().tolist():
                path: list[int] = []
                path_terms: list[float] = []
                maps: list[Tensor] = []
                for time in range(last, -1, -1):
                    path.append(tokens[time][source][row])
                    path_terms.append(terms[time][source][row])
                    row = parents[time][source][row]
                    if weights:
                        maps.append(weights[time][source, row])  # (L,), of the emitting row
                for sequence in (path, path_terms, maps):
                    sequence.reverse()
                total = sum(path_terms)
                score = normalisation.score(total, len(path))
                attention = torch.stack(maps) if weights else torch.empty(len(path), 0)  # (T, L)
                if coverage.beta > 0:
                    source_mask = None if mask is None else mask[source]  # (L,)
                    score += coverage.score(attention, source_mask)
                hypothesis = Hypothesis(
                    tokens=path[:-1],
                    log_probability=total,
                    token_log_probabilities=path_terms,
                    score=score,
                    attention=attention[:-1],  # (T, L) or (T, 0), without the end token
                    cut=last >= maximum_length and path_terms[-1] < math.log(0.5),
                )
                ranked[source].append(hypothesis)
        for hypotheses in ranked:
            hypotheses.sort(key=lambda hypothesis: (hypothesis.cut, -hypothesis.score))
        return [hypotheses[:width] for hypotheses in ranked]
