"""The steps of the decoder loop in torch, with its strategies."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from captioner.arrays import Array
from captioner.attention.memory import Memory
from captioner.attention.selection import sample
from captioner.decoding.constraints import block, to_device
from captioner.decoding.options import AnySearch
from captioner.decoding.protocol import Decoder, State, Step, map_state, select_rows, select_sources
from captioner.decoding.rules import Constraints, Rules
from captioner.decoding.search import Advanced, Hypothesis, StepChoices, search_hypotheses


class Choice(NamedTuple):
    """The rows that continue, (B, K') each.

    parents: the old row that each continues, an index into K. tokens: its next token. terms: the
    token's log-probability. live: boolean, False for padding rows.
    """

    parents: Tensor
    tokens: Tensor
    terms: Tensor
    live: Tensor


class Beam(NamedTuple):
    """K rows (partial hypotheses) of each of B sources.

    state: the decoder's, before the last tokens. history: (B, K, 1 + t), the start token and the
    tokens so far. totals: (B, K), their log-probability. live: (B, K) boolean, False once a row has
    ended. ended: (B, 1), how many hypotheses of each source have ended.
    """

    state: State
    history: Tensor
    totals: Tensor
    live: Tensor
    ended: Tensor


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
        ended: (B, 1), the number of ended hypotheses of each source.
        """
        vocabulary_size = steps.shape[-1]
        totals = torch.where(live, totals, float("-inf"))
        # The best of all rows hold at most `width` of one row.
        row_best, tokens = steps.topk(min(self.width, vocabulary_size), dim=-1)  # (B, K, k)
        candidates = (totals.unsqueeze(-1) + row_best).flatten(start_dim=1)  # (B, K * k)
        keep = min(self.width, candidates.shape[-1])
        best, index = candidates.topk(keep, dim=-1)  # (B, K')
        rank = torch.arange(keep, device=best.device)  # (K')
        free = self.width - ended  # (B, 1)
        return Choice(
            parents=index // row_best.shape[-1],
            tokens=tokens.flatten(start_dim=1).gather(1, index),
            terms=row_best.flatten(start_dim=1).gather(1, index),
            live=(rank < free) & (best > float("-inf")),
        )


@dataclass(frozen=True)
class Sampling:
    """Draws each next token from the model's distribution.

    search: `n_best` is the number of independent samples of a source. `temperature` divides the
        logits. `top_k` keeps the k most probable tokens, 0 all; `top_p` the fewest whose
        probabilities sum to at least p (Holtzman et al. 2020, *The Curious Case of Neural Text
        Degeneration*, equation 2).
    generator: the source of randomness.
    """

    search: AnySearch
    generator: torch.Generator
    drops_finished: ClassVar[bool] = False

    def choose(self, totals: Tensor, steps: Tensor, live: Tensor, ended: Tensor) -> Choice:
        """Like `BeamSearch.choose`, but samples; the first step copies one row `n_best` times."""
        batch_size, rows, _ = steps.shape
        width = self.search.n_best
        parents = torch.arange(rows, device=steps.device).expand(batch_size, rows)  # (B, K)
        if rows < width:
            parents = parents.new_zeros(batch_size, width)
            steps = steps.expand(-1, width, -1)  # (B, width, V)
        tokens = sample(self.distribution(steps), self.generator)
        return Choice(
            parents=parents,
            tokens=tokens,
            terms=steps.gather(-1, tokens.unsqueeze(-1)).squeeze(-1),
            live=live.gather(1, parents),
        )

    def distribution(self, steps: Tensor) -> Tensor:
        """Log-probabilities (..., V) -> the probabilities (..., V) of the draw."""
        steps = steps.float()
        limits = torch.finfo(steps.dtype)
        temperature = min(max(self.search.temperature, limits.tiny), limits.max)
        logits = (steps - steps.amax(dim=-1, keepdim=True)) / temperature  # 0 at the highest
        size = logits.shape[-1]
        top_p = self.search.top_p
        count = min(self.search.top_k, size) or size  # k
        if count == size and top_p == 1:
            return torch.softmax(logits, dim=-1)
        ordered, order = logits.topk(count, dim=-1)  # (..., k)
        probabilities = torch.softmax(ordered, dim=-1)  # (..., k), falling
        if top_p < 1:
            before = probabilities.cumsum(dim=-1).roll(1, dims=-1)  # mass ahead of each token
            before[..., 0] = -1.0  # The first is kept, also at a p that float32 rounds to 0.
            probabilities = probabilities.masked_fill(before >= top_p, 0.0)
        probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, order, probabilities)


Strategy = BeamSearch | Sampling


def make_strategy(search: AnySearch, generator: torch.Generator | None = None) -> Strategy:
    """The strategy of a search. generator: for sampling; by default a new one."""
    if search.sample:
        return Sampling(search, generator or make_generator(search))
    return BeamSearch(search.beam)


def make_generator(search: AnySearch, device: torch.device | str = "cpu") -> torch.Generator:
    """A new generator from `seed`; on the model's device no samples need to be copied."""
    return torch.Generator(device).manual_seed(search.seed)


def advance(
    step: Step,
    beam: Beam,
    strategy: Strategy,
    rules: Rules,
    end: int,
    length_normalisation: float | Tensor = 0.0,
    keep_attention: bool = True,
) -> Advanced[Beam]:
    """Extend, end and order the rows of a beam by the decoder's step. Reads no value.

    rules: as tensors. end: the token that ends a sequence.
    length_normalisation: alpha of Wu et al. 2016, equation 14 (GNMT): hypotheses are ranked by
        log P / ((5 + T) / 6) ** alpha, so that longer ones are not ranked lower; 0 changes
        nothing, 0.6 to 1 are common.
    """
    log_probabilities = torch.log_softmax(step.logits.float(), dim=-1)  # (B, K, V)
    # One NaN among the logits makes its whole row NaN, and so the sum.
    is_nan = log_probabilities[..., end].sum(dim=1).isnan()  # (B,)
    block(rules, log_probabilities, beam.history, end)

    parents, tokens, terms, live = strategy.choose(
        beam.totals, log_probabilities, beam.live, beam.ended
    )  # (B, K') each
    is_end = live & (tokens == end)
    live = live & ~is_end
    if strategy.drops_finished:
        width = live.shape[1]  # K'; `len` would make it a constant of an exported graph.
        places = torch.arange(width, device=live.device)
        ranks = torch.where(live, places, places + width)
        # Live rows first, so that `narrow` is a slice.
        order = ranks.topk(width, dim=1, largest=False).indices  # (B, K')
        rows = parents, tokens, terms, live, is_end
        parents, tokens, terms, live, is_end = (each.gather(1, order) for each in rows)
    totals = beam.totals.gather(1, parents) + terms
    weights = step.weights if keep_attention else step.weights[..., :0]  # (B, K, L or 0)
    state, past, weights = select_rows((step.state, beam.history, weights), parents)
    length = past.shape[-1]  # t + 1, with the newest token
    choices = StepChoices(
        parents=parents,
        tokens=tokens,
        terms=terms,
        weights=weights.float(),  # (B, K', L or 0)
        is_end=is_end,
        scores=totals / ((5 + length) / 6) ** length_normalisation,
        is_cut=(rules.maximum_length < length) & (terms < math.log(0.5)),
    )
    extended = Beam(
        state=state,
        history=torch.cat([past, tokens.unsqueeze(-1)], dim=-1),  # (B, K', 2 + t)
        totals=totals,
        live=live,
        ended=beam.ended + is_end.sum(dim=1, keepdim=True),
    )
    return extended, choices, live.sum(dim=1).masked_fill(is_nan, -1)


@dataclass(frozen=True)
class TorchStepper:
    """The `Stepper` of a decoder.

    rules_of: the rules of each step, the last those of all later ones, as tensors; given V.
    extend: `advance` with its other arguments.
    """

    decoder: Decoder
    memory: Memory
    start_token: int
    rules_of: Callable[[int], list[Rules]]
    drops_finished: bool
    extend: Callable[..., Advanced[Beam]]

    @property
    def batch_size(self) -> int:
        """B, the sources of the memory."""
        return self.memory.batch_size

    def start(self) -> Beam:
        """One row a source, of the start token."""
        device = self.memory.values.device
        history = torch.full((self.batch_size, 1, 1), self.start_token, device=device)
        return Beam(
            state=self.decoder.start(self.memory),
            history=history,
            totals=torch.zeros(self.batch_size, 1, device=device),
            live=torch.ones_like(history[..., 0], dtype=torch.bool),
            ended=torch.zeros_like(history[..., 0]),
        )

    def advance(self, beam: Beam) -> Advanced[Beam]:
        """Extend every row by a token."""
        step = self.decoder.step(beam.history[..., -1], beam.state)
        rules = self.rules_of(step.logits.shape[-1])
        return self.extend(step, beam, rules=rules[: beam.history.shape[-1]][-1])

    def narrow(self, beam: Beam, width: int) -> Beam:
        """Keep the first `width` rows of each source."""
        if width == beam.live.shape[1]:
            return beam
        return map_state(beam, lambda rows: rows[:, :width])  # type: ignore[no-any-return]

    def keep_sources(self, beam: Beam, sources: list[int]) -> Beam:
        """Keep these sources only."""
        kept = torch.tensor(sources).to(beam.live.device, non_blocking=True)
        return select_sources(beam, kept)  # type: ignore[no-any-return]

    def to_numpy(self, arrays: list[Tensor]) -> list[Array]:
        """Convert arrays of one type to NumPy, in one copy from a GPU."""
        flat = torch.cat([array.flatten() for array in arrays]).cpu()
        ends = np.cumsum([array.numel() for array in arrays])
        parts = np.split(flat.numpy(), ends[:-1])
        return [part.reshape(array.shape) for part, array in zip(parts, arrays, strict=True)]


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
    length_normalisation, coverage_penalty: by which finished hypotheses are ranked, not the partial
        ones in a beam; see `advance` and `captioner.decoding.search`.
    keep_attention: collect attention maps, which takes time; a coverage penalty needs them.

    Returns the hypotheses of each of the B sources, best score first but cut ones last: at least
    one, at most the strategy's width. A source decodes alike alone and in a batch, up to rounding,
    except by sampling, where one generator serves the batch.
    """
    constraints, strategy = constraints or Constraints(), strategy or BeamSearch()
    extend = partial(
        advance,
        strategy=strategy,
        end=end,
        length_normalisation=length_normalisation,
        keep_attention=keep_attention or coverage_penalty > 0,
    )
    device, drops_finished = memory.values.device, strategy.drops_finished
    rules_of = cache(lambda size: [to_device(each, device) for each in constraints.steps(size)])
    stepper = TorchStepper(decoder, memory, start, rules_of, drops_finished, extend)
    mask = None
    if coverage_penalty > 0 and memory.mask is not None:
        mask = memory.mask.cpu().numpy()  # (B, L)
    longest = constraints.search.maximum_length
    return search_hypotheses(stepper, longest, coverage_penalty, mask)
