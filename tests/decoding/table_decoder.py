"""A decoder made of a table, and the searches written plainly over it, for the tests beside it.

The next token depends on the source and on every token before it: they are hashed, and the hash
is a row of a table of logits. The "attention" it hands out says of which source it is, at which
step it was made, and after which tokens.
"""

import math
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from captioner.attention.memory import Memory
from captioner.decoding.constraints import Constraints
from captioner.decoding.protocol import Step

START, END = 0, 1
ROWS = 4093  # a prime


class TableState(NamedTuple):
    memory: Memory
    hashes: Tensor  # (B, K), of the tokens before
    steps: Tensor  # (B, K), how many there were


def memory_of(*sources: int) -> Memory:
    """A memory (B, 3, 1) whose sources differ by a number."""
    values = torch.tensor(sources, dtype=torch.float32).view(-1, 1, 1).expand(-1, 3, 1).clone()
    return Memory(values, values)


def next_hash(before: int, token: int) -> int:
    return (before * 31 + token * 7 + 5) % ROWS


def random_table(seed: int, vocabulary_size: int, scale: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(ROWS, vocabulary_size, generator=generator)


@dataclass
class TableDecoder:
    """Follows `captioner.decoding.protocol.Decoder`, and notes what it is given.

    table: (ROWS, V), logits after each hash of a history.
    """

    table: Tensor
    memories: list[Memory] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    fed: list[Tensor] = field(default_factory=list)

    def start(self, memory: Memory) -> TableState:
        hashes = memory.values[:, :1, 0].long()  # (B, 1)
        self.memories.append(memory)
        return TableState(memory, hashes, torch.zeros_like(hashes))

    def step(self, tokens: Tensor, state: object) -> Step:
        assert isinstance(state, TableState)
        memory, hashes, steps = state
        assert tokens.shape == hashes.shape
        assert tokens.shape[0] == memory.batch_size
        assert bool(((tokens >= 0) & (tokens < self.table.shape[1])).all())
        self.memories.append(memory)
        self.widths.append(tokens.shape[1])
        self.fed.append(tokens.clone())
        hashes = (hashes * 31 + tokens * 7 + 5) % ROWS  # (B, K)
        source = memory.values[:, :1, 0].expand_as(hashes)  # (B, K)
        weights = torch.stack([source, steps.float(), hashes.float()], dim=-1)  # (B, K, 3)
        return Step(self.table[hashes], TableState(memory, hashes, steps + 1), weights)

    def log_probabilities(self, source: int, tokens: list[int]) -> list[float]:
        """Of every next token, after these of this source; in float64, without tensors."""
        logits = self.table[self._hash(source, tokens)].tolist()
        highest = max(logits)
        total = highest + math.log(sum(math.exp(logit - highest) for logit in logits))
        return [logit - total for logit in logits]

    def replay(self, source: int, tokens: list[int]) -> list[float]:
        """The log-probability of each of the tokens and of the end behind them."""
        return [
            self.log_probabilities(source, tokens[:position])[token]
            for position, token in enumerate([*tokens, END])
        ]

    def attention(self, source: int, tokens: list[int]) -> list[list[float]]:
        """The map with which each of the tokens is emitted."""
        return [
            [float(source), float(position), float(self._hash(source, tokens[:position]))]
            for position in range(len(tokens))
        ]

    def _hash(self, source: int, tokens: list[int]) -> int:
        value = source
        for token in [START, *tokens]:
            value = next_hash(value, token)
        return value


def allowed_next(
    tokens: list[int], log_probabilities: list[float], constraints: Constraints
) -> list[int]:
    """The tokens that may come next, written plainly."""
    if len(tokens) == constraints.maximum_length:
        return [END]
    n = constraints.block_ngrams
    allowed = []
    for token, value in enumerate(log_probabilities):
        if value == float("-inf") or token in constraints.forbidden:
            continue
        if token == END and len(tokens) < constraints.minimum_length:
            continue
        soon = tokens[max(0, len(tokens) - constraints.repeat_distance) :]
        if constraints.repeat_distance and token in soon and token not in constraints.repeatable:
            continue
        if n and token != END and has_repeat([*tokens, token], n):
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
                candidates.append((tokens, token, total + values[token]))
        candidates.sort(key=lambda candidate: -candidate[2])
        live = []
        for tokens, token, total in candidates[: width - len(ended)]:
            if token == END:
                ended.append((tokens, total))
            else:
                live.append(([*tokens, token], total))
    return ended


def every_sequence(vocabulary_size: int, maximum_length: int) -> list[list[int]]:
    """All token lists without the end token, up to a length."""
    tokens = [token for token in range(vocabulary_size) if token != END]
    return [
        list(sequence)
        for length in range(maximum_length + 1)
        for sequence in product(tokens, repeat=length)
    ]
