"""The decoder loop: the only one, for captions and translations, greedy, beam and sampling."""

from __future__ import annotations

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
    """Decode every source of a memory, all at once.

    start, end: the tokens that begin and end a sequence.
    strategy: how tokens are chosen; a beam of 5 by default.
    length_normalisation, coverage_penalty: what the hypotheses that ended are ranked by, beside
        their log-probability; which partial ones a beam keeps does not depend on them. None at all
        by default.
    keep_attention: whether hypotheses are given their attention, which takes time to put together.

    Returns for each of the B sources its hypotheses, best score first: never none, and at most
    `strategy.width`. Decoding one source gives what decoding it in a batch gives, unless the
    strategy draws: one generator serves the whole batch.
    Raises `UserError` when the model gives NaN.
    """
    strategy = BeamSearch() if strategy is None else strategy
    constraints = Constraints() if constraints is None else constraints
    normalisation = LengthNormalisation() if length_normalisation is None else length_normalisation
    coverage = CoveragePenalty() if coverage_penalty is None else coverage_penalty
    looks_needed = keep_attention or coverage.beta > 0
    batch_size, device = memory.batch_size, memory.values.device
    state = decoder.start(memory)
    tokens = torch.full((batch_size, 1), start, device=device)  # (B, 1)
    history = tokens.new_empty(batch_size, 1, 0)  # (B, 1, 0)
    totals = torch.zeros(batch_size, 1, device=device)  # (B, 1)
    live = torch.ones(batch_size, 1, dtype=torch.bool, device=device)  # (B, 1)
    ended = torch.zeros(batch_size, dtype=torch.long, device=device)  # (B,)
    trail = _Trail()
    for _ in range(constraints.maximum_length + 1):
        step = decoder.step(tokens, state)
        own = torch.log_softmax(step.logits.float(), dim=-1)  # (B, K, V)
        if bool(own[..., end].isnan().any()):  # One NaN makes all of its row NaN.
            raise UserError("the model's output is not a number; its weights are damaged")
        allowed = constraints.apply(own, history, end)  # (B, K, V)
        parents, tokens, live = strategy.choose(totals, allowed, live, ended)  # (B, K')
        chosen = parents * own.shape[-1] + tokens  # (B, K'), into the K * V continuations
        gained = allowed.flatten(start_dim=1).gather(1, chosen)  # (B, K')
        totals = totals.gather(1, parents) + gained  # (B, K')
        past = parents.unsqueeze(-1).expand(-1, -1, history.shape[-1])  # (B, K', t)
        history = history.gather(1, past)  # (B, K', t)
        history = torch.cat([history, tokens.unsqueeze(-1)], dim=-1)  # (B, K', t + 1)
        ending = live & (tokens == end)  # (B, K')
        trail.append(parents, tokens, gained, step.weights if looks_needed else None, ending)
        ended = ended + ending.sum(dim=-1)  # (B,)
        live = live & ~ending
        if not bool(live.any()):
            break
        state = decoder.select(step.state, parents)
    found = trail.hypotheses(normalisation, strategy.width, coverage, memory.mask)
    return found if keep_attention else [list(map(_without_attention, each)) for each in found]


def greedy(
    decoder: Decoder,
    memory: Memory,
    *,
    start: int,
    end: int,
    constraints: Constraints | None = None,
) -> list[Hypothesis]:
    """The most probable next token at every step: a beam of one. One hypothesis a source."""
    found = decode(
        decoder, memory, start=start, end=end, strategy=BeamSearch(1), constraints=constraints
    )
    return [hypotheses[0] for hypotheses in found]


def _without_attention(hypothesis: Hypothesis) -> Hypothesis:
    return replace(hypothesis, attention=torch.empty(len(hypothesis.tokens), 0))


@dataclass
class _Trail:
    """What was chosen at each step, as back-pointers; followed only when the search is over."""

    parents: list[Tensor] = field(default_factory=list)
    tokens: list[Tensor] = field(default_factory=list)
    gained: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)  # none where attention is not kept
    ending: list[Tensor] = field(default_factory=list)

    def append(
        self,
        parents: Tensor,
        tokens: Tensor,
        gained: Tensor,
        weights: Tensor | None,
        ending: Tensor,
    ) -> None:
        """Keep one step. The weights are those of the parents, (B, K, L); the rest is (B, K')."""
        self.parents.append(parents)
        self.tokens.append(tokens)
        self.gained.append(gained)
        if weights is not None:
            self.weights.append(weights.float())
        self.ending.append(ending)

    def hypotheses(
        self,
        normalisation: LengthNormalisation,
        width: int,
        coverage: CoveragePenalty,
        mask: Tensor | None,
    ) -> list[list[Hypothesis]]:
        """Follow the back-pointers of every row that ended; mask (B, L) is the memory's."""
        steps = [
            tuple(tensor.cpu() for tensor in step)
            for step in zip(self.parents, self.tokens, self.gained, self.ending, strict=True)
        ]
        parents, tokens, gained = ([step[i].tolist() for step in steps] for i in range(3))
        weights = [step.cpu() for step in self.weights]
        batch_size = len(parents[0])
        tips: list[list[tuple[int, int]]] = [[] for _ in range(batch_size)]
        for time, step in enumerate(steps):
            for source, row in step[3].nonzero().tolist():
                tips[source].append((time, row))
        found: list[list[Hypothesis]] = []
        for source in range(batch_size):
            hypotheses = []
            for time, row in tips[source]:
                path: list[int] = []
                terms: list[float] = []
                looked: list[Tensor] = []
                for moment in range(time, -1, -1):
                    path.append(tokens[moment][source][row])
                    terms.append(gained[moment][source][row])
                    row = parents[moment][source][row]
                    if weights:
                        looked.append(weights[moment][source, row])  # (L,), of the emitting row
                for sequence in (path, terms, looked):
                    sequence.reverse()
                total = sum(terms)
                score = normalisation.score(total, len(path))
                attention = torch.stack(looked) if weights else torch.empty(len(path), 0)  # (T, L)
                if coverage.beta > 0:
                    own = None if mask is None else mask[source].cpu()  # (L,)
                    score += coverage.score(attention, own)
                hypotheses.append(
                    Hypothesis(
                        tokens=path[:-1],
                        log_probability=total,
                        token_log_probabilities=terms,
                        score=score,
                        attention=attention[:-1],  # (T, L), the end token's left out; or (T, 0).
                    )
                )
            hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
            found.append(hypotheses[:width])
        return found
