"""The decoder loop of captions and translations, with its strategies and its ranking."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from captioner.attention.memory import Memory
from captioner.attention.selection import sample
from captioner.decoding.beam import Beam, Choice, Nodes, TokenTree
from captioner.decoding.constraints import Constraints
from captioner.decoding.protocol import Decoder, Hypothesis, select_rows
from captioner.errors import UserError


@dataclass(frozen=True)
class BeamSearch:
    """Keeps the K (`width`) most probable partial hypotheses of each source.

    A hypothesis that ends leaves the beam, which narrows by one until all K have ended, as in the
    search of Xu et al. 2015. A beam of 1 is greedy search. Graves 2012, *Sequence Transduction with
    Recurrent Neural Networks*, algorithm 1; Sutskever et al. 2014, section 3.2.
    """

    width: int = 5
    drops_finished: ClassVar[bool] = True
    """Whether rows that have ended may be left out; samples depend on the number of rows."""

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
        """Like `BeamSearch.choose`, but samples; the first step copies one row `width` times."""
        batch_size, rows, _ = steps.shape
        parents = torch.arange(rows, device=steps.device).expand(batch_size, rows)  # (B, K)
        if rows < self.width:
            parents = parents.new_zeros(batch_size, self.width)
            steps = steps.expand(-1, self.width, -1)  # (B, width, V)
        return Choice(
            parents=parents,
            tokens=sample(self.distribution(steps), self.generator),
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
    strategy = strategy or BeamSearch()
    constraints = constraints or Constraints()
    beam = Beam.start(memory, decoder.start(memory), start)
    tree = TokenTree()
    for _ in range(constraints.maximum_length + 1):
        step = decoder.step(beam.tokens, beam.state)
        log_probabilities = torch.log_softmax(step.logits.float(), dim=-1)  # (B, K, V)
        # One NaN among the logits makes its whole row NaN.
        is_nan = log_probabilities[..., end].isnan().any()
        constraints.block(log_probabilities, beam.history, end)

        choice = strategy.choose(beam.totals, log_probabilities, beam.live, beam.ended)  # (B, K')
        chosen = choice.parents * log_probabilities.shape[-1] + choice.tokens  # into K * V
        terms = log_probabilities.flatten(start_dim=1).gather(1, chosen)  # (B, K')
        beam.extend(choice, terms)
        is_end = beam.end(end)  # (B, K')
        weights = terms.new_empty(*terms.shape, 0)  # (B, K', 0)
        if keep_attention or coverage_penalty > 0:
            weights = select_rows(step.weights, choice.parents)  # (B, K', L)
        beam.nodes = tree.add(beam, is_end, terms, weights)

        # The only values that a step reads.
        has_failed, *live_counts = torch.cat([is_nan.view(1), beam.live.sum(dim=-1)]).tolist()
        if has_failed:
            raise UserError("the model's output is not a number; its weights are damaged")
        if not any(live_counts):
            break
        if strategy.drops_finished:
            beam.narrow(max(live_counts))
        beam.state = select_rows(step.state, beam.parents)
        if strategy.drops_finished and 2 * live_counts.count(0) >= len(live_counts):
            # Drop ended sources once half have ended: the copy is at most half the memory.
            unfinished = torch.tensor([index for index, rows in enumerate(live_counts) if rows])
            beam.keep_sources(unfinished.to(terms.device, non_blocking=True))
    return _ranked(
        tree.nodes(),
        memory,
        longest=constraints.maximum_length,
        alpha=length_normalisation,
        beta=coverage_penalty,
    )


def _ranked(
    nodes: Nodes, memory: Memory, longest: int, alpha: float, beta: float
) -> list[list[Hypothesis]]:
    """Build the hypotheses of each source of the memory, best first but cut ones last.

    A hypothesis is the path from an end token back to a token without a parent.
    """
    indices = torch.stack([nodes.parents, nodes.sources, nodes.tokens, nodes.is_end.long()])
    parents, sources, tokens, is_end = indices.tolist()
    numbers = torch.cat([nodes.terms.unsqueeze(1), nodes.weights], dim=1).cpu()  # (N, 1 + L)
    terms = numbers[:, 0].tolist()
    weights = numbers[:, 1:]  # (N, L) or (N, 0)
    mask = memory.mask  # (B, L)
    if mask is None:
        mask = torch.ones(memory.values.shape[:2], dtype=torch.bool)
    mask = mask.cpu()
    ranked: list[list[Hypothesis]] = [[] for _ in range(memory.batch_size)]
    for last in (node for node, ends in enumerate(is_end) if ends):
        path = [last]
        while parents[path[-1]] >= 0:
            path.append(parents[path[-1]])
        path.reverse()
        source = sources[last]
        attention = weights[path]  # (T + 1, L) or (T + 1, 0)
        path_terms = [terms[node] for node in path]
        total = sum(path_terms)
        hypothesis = Hypothesis(
            tokens=[tokens[node] for node in path[:-1]],
            log_probability=total,
            token_log_probabilities=path_terms,
            score=_score(total, attention, mask[source], alpha, beta),
            attention=attention[:-1],  # Without the end token.
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
