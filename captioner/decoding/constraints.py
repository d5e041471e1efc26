"""Limits on decoding: minimum and maximum length, forbidden tokens, no repetitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from captioner.decoding.options import IMPOSSIBLE, LIKELIEST, ORDER

BLOCKED = float("-inf")


@dataclass(frozen=True)
class Constraints:
    """Limits on hypotheses. Lengths count tokens without the end token.

    minimum_length: the end token is blocked before this many tokens.
    maximum_length: after this many tokens only the end token is not blocked.
    block_ngrams: n; no n-gram occurs twice in a hypothesis. 0 blocks none.
    forbidden: tokens that are never chosen (padding, start, unknown).
    repeat_distance: a token is blocked for this many tokens after it. 0 blocks none.
    repeatable: tokens exempt from `repeat_distance` (articles, prepositions).
    ngrams: (N,) sorted `ngram_keys` of the n-grams of tokens that people wrote, n being `ORDER`. No
        other n-gram occurs in a hypothesis, except before an end where nothing else is left. Only
        the `LIKELIEST` tokens of a step are candidates. An n-gram (a, `start`, `start`, b) of a
        word a, which no sentence has, says that b may not follow a anywhere in a hypothesis.
    start: the token that stands n - 1 times before the first one.
    """

    minimum_length: int = 0
    maximum_length: int = 50
    block_ngrams: int = 0
    forbidden: tuple[int, ...] = ()
    repeat_distance: int = 0
    repeatable: tuple[int, ...] = ()
    ngrams: Tensor | None = None
    start: int = 0

    def block(self, log_probabilities: Tensor, history: Tensor, end: int) -> None:
        """Set log-probabilities (B, K, V) of tokens ruled out by those so far (B, K, t) to -inf.

        A row with every token blocked may end, with a log-probability of at least `IMPOSSIBLE`.
        """
        length = history.shape[-1]
        ending = log_probabilities[..., end].clamp(min=IMPOSSIBLE)  # (B, K)
        if length >= self.maximum_length:
            log_probabilities.fill_(BLOCKED)
            log_probabilities[..., end] = ending
            return
        if self.forbidden:
            forbidden = _on_device(self.forbidden, history.device)
            log_probabilities.index_fill_(-1, forbidden, BLOCKED)
        if self.ngrams is not None:
            self._block_unknown_ngrams(log_probabilities, history)
        if length < self.minimum_length:
            log_probabilities[..., end] = BLOCKED
            ending = torch.full_like(ending, IMPOSSIBLE)  # Ranks last.
        if 0 < self.block_ngrams <= length:
            self._block_ngrams(log_probabilities, history)
        if self.repeat_distance and length:
            self._block_repeats(log_probabilities, history)
        nothing_left = log_probabilities.amax(dim=-1) == BLOCKED  # (B, K)
        log_probabilities[..., end] = torch.where(nothing_left, ending, log_probabilities[..., end])

    def _block_unknown_ngrams(self, log_probabilities: Tensor, history: Tensor) -> None:
        """Block all but the likeliest tokens that complete a known n-gram and clash with none."""
        size = log_probabilities.shape[-1]
        starts = history.new_full((*history.shape[:2], ORDER - 1), self.start)
        before = torch.cat([starts, history], dim=-1)[..., 1 - ORDER :]  # (B, K, n - 1)
        likeliest, tokens = log_probabilities.topk(min(LIKELIEST, size), dim=-1)  # (B, K, n)
        keys = ngram_keys(before.unbind(dim=-1), size)[..., None]  # (B, K, 1)
        is_known = self._has(keys * size + tokens)  # (B, K, n)
        between = starts[..., 1:, None].unbind(dim=-2)  # n - 2 of (B, K, 1)
        clashes = ngram_keys([history, *between], size)[..., None]  # (B, K, t, 1)
        clashes = clashes * size + tokens[..., None, :]  # (B, K, t, n)
        is_known &= ~self._has(clashes).any(dim=-2)  # (B, K, t, n) -> (B, K, n)
        log_probabilities.fill_(BLOCKED)
        log_probabilities.scatter_(-1, tokens, likeliest.masked_fill(~is_known, BLOCKED))

    def _has(self, keys: Tensor) -> Tensor:
        """Whether each key is among `ngrams`."""
        assert self.ngrams is not None
        place = torch.searchsorted(self.ngrams, keys).clamp(max=len(self.ngrams) - 1)
        return self.ngrams[place] == keys

    def _block_repeats(self, log_probabilities: Tensor, history: Tensor) -> None:
        """Block the last `repeat_distance` tokens of each row, except `repeatable` ones."""
        repeatable = _on_device(self.repeatable, history.device)  # (N,)
        kept = log_probabilities.index_select(-1, repeatable)  # (B, K, N)
        log_probabilities.scatter_(-1, history[..., -self.repeat_distance :], BLOCKED)
        log_probabilities.index_copy_(-1, repeatable, kept)

    def _block_ngrams(self, log_probabilities: Tensor, history: Tensor) -> None:
        """Block tokens that complete an n-gram already in their row's history."""
        n = self.block_ngrams
        windows = history.unfold(-1, n, 1)  # (B, K, t - n + 1, n)
        context = windows[..., -1:, 1:]  # (B, K, 1, n - 1), the last n - 1 tokens
        repeats = (windows[..., : n - 1] == context).all(dim=-1)  # (B, K, t - n + 1)
        penalties = torch.where(repeats, BLOCKED, 0.0).to(log_probabilities.dtype)
        log_probabilities.scatter_add_(-1, windows[..., n - 1], penalties)


def ngram_keys(tokens: Iterable[Tensor | int], vocabulary_size: int) -> Tensor:
    """A number for each n-gram of up to 55,108 words, in their order. tokens: first, second, ..."""
    keys = torch.zeros((), dtype=torch.long)
    for token in tokens:
        keys = keys * vocabulary_size + token
    return keys


def ngrams_of_keys(keys: Tensor, vocabulary_size: int) -> Tensor:
    """The n-grams of `ngram_keys` (N,): (N, ORDER)."""
    powers = vocabulary_size ** torch.arange(ORDER - 1, -1, -1, device=keys.device)  # (ORDER,)
    return keys[:, None] // powers % vocabulary_size  # (N, ORDER)


def _on_device(tokens: tuple[int, ...], device: torch.device) -> Tensor:
    """Tokens as a tensor (N,). As an index, a list waits for a GPU."""
    return torch.tensor(tokens, dtype=torch.long).to(device, non_blocking=True)
