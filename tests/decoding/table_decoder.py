"""A decoder made of a table, and the searches written plainly over it, for the tests beside it.

The next token depends on the source and on every token before it: their hash is a row of a table of
logits. The "attention" is the source, the step and the hash.
"""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from captioner.attention.memory import Memory
from captioner.decoding.loop import decode, make_strategy
from captioner.decoding.options import SearchOptions
from captioner.decoding.protocol import Step
from captioner.decoding.rules import IMPOSSIBLE, Constraints
from captioner.decoding.search import Hypothesis

START, END = 0, 1
ROWS = 4093  # a prime


class TableState(NamedTuple):
    """hashes, steps: (B, K), of the tokens before, and how many there were."""

    memory: Memory
    hashes: Tensor
    steps: Tensor


def memory_of(*sources: int) -> Memory:
    """A memory (B, 3, 1) whose sources differ by a number."""
    values = torch.tensor(sources, dtype=torch.float32).view(-1, 1, 1).expand(-1, 3, 1).clone()
    return Memory(values, values)


def random_table(seed: int, vocabulary_size: int, scale: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(ROWS, vocabulary_size, generator=generator)


@dataclass
class TableDecoder:
    """table: (ROWS, V), logits after each hash of a history. Notes what it is given."""

    table: Tensor
    memories: list[Memory] = field(default_factory=list)
    fed: list[Tensor] = field(default_factory=list)

    def start(self, memory: Memory) -> TableState:
        hashes = memory.values[:, :1, 0].long()  # (B, 1)
        self.memories.append(memory)
        return TableState(memory, hashes, torch.zeros_like(hashes))

    def step(self, tokens: Tensor, state: object) -> Step:
        assert isinstance(state, TableState)
        memory, hashes, steps = state
        self.memories.append(memory)
        self.fed.append(tokens.clone())
        hashes = (hashes * 31 + tokens * 7 + 5) % ROWS  # (B, K)
        source = memory.values[:, :1, 0].expand_as(hashes)  # (B, K)
        weights = torch.stack([source, steps.float(), hashes.float()], dim=-1)  # (B, K, 3)
        return Step(self.table[hashes], TableState(memory, hashes, steps + 1), weights)

    def log_probabilities(self, source: int, tokens: list[int]) -> list[float]:
        """Of every next token, after these of this source; in float64, without tensors."""
        logits = self.table[self._hash(source, tokens)].tolist()
        total = math.log(sum(map(math.exp, logits)))
        return [logit - total for logit in logits]

    def replay(self, source: int, tokens: list[int]) -> list[float]:
        """The log-probability of each of the tokens and of the end behind them."""
        return [
            self.log_probabilities(source, tokens[:position])[token]
            for position, token in enumerate([*tokens, END])
        ]

    def attention(self, source: int, tokens: list[int]) -> list[list[float]]:
        """The map with which each of the tokens is emitted."""
        steps = range(len(tokens))
        return [[source, step, float(self._hash(source, tokens[:step]))] for step in steps]

    def _hash(self, source: int, tokens: list[int]) -> int:
        value = source
        for token in [START, *tokens]:
            value = (value * 31 + token * 7 + 5) % ROWS
        return value


def allowed_next(
    tokens: list[int], log_probabilities: list[float], constraints: Constraints
) -> list[int]:
    """The tokens that may come next, written plainly."""
    search = constraints.search
    if len(tokens) == search.maximum_length:
        return [END]
    n = search.block_ngrams
    classes = constraints.classes or range(len(log_probabilities))
    soon = tokens[max(0, len(tokens) - search.repeat_distance) :]
    said = {classes[each] for each in soon if each not in constraints.repeatable}
    allowed = []
    for token, value in enumerate(log_probabilities):
        if value == float("-inf") or token in constraints.forbidden:
            continue
        if token == END and len(tokens) < search.minimum_length:
            continue
        if search.repeat_distance and classes[token] in said:
            continue
        written = [*tokens, token]
        if any(written[-len(phrase) :] == [*phrase] for phrase in constraints.phrases):
            continue
        if n and token != END and has_repeat(written, n):
            continue
        allowed.append(token)
    return allowed or [END]


def has_repeat(tokens: list[int], n: int) -> bool:
    """Whether some n-gram occurs twice."""
    ngrams = [tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1)]
    return len(set(ngrams)) < len(ngrams)


def naive_beam_search(
    decoder: TableDecoder, source: int, width: int, constraints: Constraints
) -> list[tuple[list[int], float]]:
    """One source, lists only: tokens and log-probability of every hypothesis that ended."""
    live: list[tuple[list[int], float]] = [([], 0.0)]
    ended: list[tuple[list[int], float]] = []
    while live and len(ended) < width:
        candidates = []
        for tokens, total in live:
            values = decoder.log_probabilities(source, tokens)
            for token in allowed_next(tokens, values, constraints):
                is_too_short = token == END and len(tokens) < constraints.search.minimum_length
                value = IMPOSSIBLE if is_too_short else values[token]
                candidates.append((tokens, token, total + value))
        candidates.sort(key=lambda candidate: -candidate[2])
        live = []
        for tokens, token, total in candidates[: width - len(ended)]:
            if token == END:
                ended.append((tokens, total))
            else:
                live.append(([*tokens, token], total))
    return ended


def search(
    decoder: TableDecoder, memory: Memory, limits: dict[str, Any] | None = None, **options: Any
) -> list[list[Hypothesis]]:
    """Hypotheses by `SearchOptions`. limits: further fields of `Constraints`."""
    search = SearchOptions(**{"minimum_length": 0, **options})
    return decode(
        decoder,
        memory,
        start=START,
        end=END,
        strategy=make_strategy(search),
        constraints=Constraints(search, **(limits or {})),
        length_normalisation=search.length_normalisation,
    )


def assert_replayed(decoder: TableDecoder, source: int, found: Hypothesis) -> None:
    """Its terms and maps are of its source, step by step, after its own words and no other's."""
    terms = decoder.replay(source, found.tokens)
    assert found.token_log_probabilities == pytest.approx(terms, abs=1e-3)
    assert found.attention.dtype == np.float32
    assert found.attention.tolist() == decoder.attention(source, found.tokens)
