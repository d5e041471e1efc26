"""Limits on decoding: minimum and maximum length, forbidden tokens, no repetitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

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
        the `LIKELIEST` tokens of a step are candidates. An n-gram (a, `start`, `start`, b), which
        no sentence has, encodes a clash: b may not follow the word a at any distance.
    """

    minimum_length: int = 0
    maximum_length: int = 50
    block_ngrams: int = 0
    forbidden: tuple[int, ...] = ()
    repeat_distance: int = 0
    repeatable: tuple[int, ...] = ()
    ngrams: Tensor | None = None

    def rules(self, vocabulary_size: int, end: int, device: torch.device | str = "cpu") -> Rules:
        """The constraints as tensors on a device."""

        def marked(tokens: tuple[int, ...]) -> Tensor:
            marks = torch.zeros(vocabulary_size, dtype=torch.bool)
            marks[list(tokens)] = True
            return marks.to(device, non_blocking=True)

        def number(value: int) -> Tensor:
            return torch.tensor(value).to(device, non_blocking=True)

        n = self.block_ngrams
        return Rules(
            end=end,
            is_end=marked((end,)),
            forbidden=marked(self.forbidden),
            minimum_length=number(self.minimum_length),
            maximum_length=number(self.maximum_length),
            repeatable=marked(self.repeatable) if self.repeat_distance else None,
            repeat_distance=number(self.repeat_distance),
            context=torch.arange(n - 1, device=device) if n else None,
            ngrams=self.ngrams,
        )


class Rules(NamedTuple):
    """Constraints as tensors, which an exported graph takes as inputs.

    end: the end token. is_end, forbidden, repeatable: (V,) boolean. minimum_length, maximum_length,
    repeat_distance: (). context: (n - 1,), steps back from the newest token, 0 to n - 2, of the
    words that a repeated n-gram begins with. ngrams: as in `Constraints`. If `repeatable`,
    `context` or `ngrams` is None, there is no such rule.
    """

    end: int
    is_end: Tensor
    forbidden: Tensor
    minimum_length: Tensor
    maximum_length: Tensor
    repeatable: Tensor | None
    repeat_distance: Tensor
    context: Tensor | None
    ngrams: Tensor | None

    def block(self, log_probabilities: Tensor, history: Tensor) -> None:
        """Set log-probabilities (B, K, V) of blocked tokens to -inf.

        history: (B, K, 1 + t), the start token and the tokens so far. A row with every token
        blocked may end, with a log-probability of at least `IMPOSSIBLE`.
        """
        length = history.shape[-1] - 1  # t
        is_early = self.minimum_length > length  # ()
        ending = log_probabilities[..., self.end].clamp(min=IMPOSSIBLE)  # (B, K)
        ending = torch.where(is_early, IMPOSSIBLE, ending)  # Ranks last.
        is_last = self.maximum_length <= length  # ()
        blocked = self.forbidden | (self.is_end & is_early) | (~self.is_end & is_last)  # (V,)
        log_probabilities += torch.where(blocked, BLOCKED, 0.0)  # 3 times as fast as a fill.
        if self.ngrams is not None:
            self._block_unknown_ngrams(log_probabilities, history, self.ngrams)
        if self.context is not None:
            self._block_ngrams(log_probabilities, history, self.context)
        if self.repeatable is not None:
            places = torch.arange(history.shape[-1], device=history.device)  # (1 + t)
            is_recent = (places + self.repeat_distance > length) & (places > 0)  # (1 + t)
            is_blocked = is_recent & ~self.repeatable[history]  # (B, K, 1 + t)
            _block_tokens(log_probabilities, history, is_blocked)
        nothing_left = log_probabilities.amax(dim=-1) == BLOCKED  # (B, K)
        at_end = log_probabilities[..., self.end]  # (B, K)
        log_probabilities[..., self.end] = torch.where(nothing_left, ending, at_end)

    def _block_unknown_ngrams(
        self, log_probabilities: Tensor, history: Tensor, known: Tensor
    ) -> None:
        """Block all but the likeliest tokens that complete a known n-gram and clash with none."""
        size = log_probabilities.shape[-1]
        start = history[..., :1]  # (B, K, 1)
        before = torch.cat([start, start, history], dim=-1)[..., 1 - ORDER :]  # (B, K, n - 1)
        likeliest, tokens = log_probabilities.topk(min(LIKELIEST, size), dim=-1)  # (B, K, C)
        newest = ngram_keys(before.unsqueeze(-1).unbind(dim=-2), size)  # (B, K, 1)
        clashes = ngram_keys([history, start, start], size)  # (B, K, 1 + t)
        is_word = torch.arange(history.shape[-1], device=history.device) > 0  # (1 + t)
        keys = torch.where(is_word, clashes, newest).unsqueeze(-1) * size  # (B, K, 1 + t, 1)
        ngrams = keys + tokens.unsqueeze(-2)  # (B, K, 1 + t, C)
        place = torch.searchsorted(known, ngrams).clamp(max=known.shape[0] - 1)
        is_known = known[place] == ngrams  # (B, K, 1 + t, C)
        has_clash = (is_known & is_word.unsqueeze(-1)).any(dim=-2)  # (B, K, C)
        is_kept = is_known[..., 0, :] & ~has_clash  # (B, K, C)
        kept = likeliest.masked_fill(~is_kept, BLOCKED)
        log_probabilities.fill_(BLOCKED).scatter_(-1, tokens, kept)

    def _block_ngrams(self, log_probabilities: Tensor, history: Tensor, context: Tensor) -> None:
        """Block tokens that complete an n-gram already in their row's history."""
        length = history.shape[-1]
        last = (length - 1 - context).clamp(min=0)  # (n - 1)
        places = torch.arange(length, device=history.device)  # (1 + t)
        before = places.unsqueeze(-1) - 1 - context  # (1 + t, n - 1)
        is_same = history[..., before.clamp(min=0)] == history[..., last].unsqueeze(-2)
        repeats = (is_same & (before >= 1)).all(dim=-1)  # (B, K, 1 + t, n - 1) -> (B, K, 1 + t)
        repeats = repeats & (places > 0)  # The start token is no part of an n-gram.
        _block_tokens(log_probabilities, history, repeats)


def _block_tokens(log_probabilities: Tensor, tokens: Tensor, is_blocked: Tensor) -> None:
    """Set log-probabilities (B, K, V) of those tokens (B, K, T) that are blocked to -inf."""
    penalties = torch.where(is_blocked, BLOCKED, 0.0).to(log_probabilities.dtype)
    log_probabilities.scatter_add_(-1, tokens, penalties)


def ngram_keys(tokens: Iterable[Any], vocabulary_size: int) -> Any:
    """A number for each n-gram of up to 55,108 words, in their order.

    tokens: the first, second, ... of all n-grams: numbers, int64 arrays or tensors of one shape.
    """
    keys: Any = 0
    for token in tokens:
        keys = keys * vocabulary_size + token
    return keys


def ngrams_of_keys(keys: Tensor, vocabulary_size: int) -> Tensor:
    """The n-grams of `ngram_keys` (N,): (N, ORDER)."""
    powers = vocabulary_size ** torch.arange(ORDER - 1, -1, -1, device=keys.device)  # (ORDER,)
    return keys[:, None] // powers % vocabulary_size  # (N, ORDER)
