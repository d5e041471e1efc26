"""Beam search over ONNX graphs, in NumPy: the rules and results of `captioner.decoding`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from captioner.decoding.options import IMPOSSIBLE, LIKELIEST, ORDER, SearchOptions
from captioner.text.vocabulary import Vocabulary

Array = np.ndarray[Any, Any]

StepOutput = tuple[Array, Array, Mapping[str, Array]]
"""Log-probabilities (B, K, V), attention weights (B, K, L), the next state (B, K, ...)."""

PAD, START, END, UNKNOWN = Vocabulary.pad, Vocabulary.start, Vocabulary.end, Vocabulary.unknown


class Hypothesis(NamedTuple):
    """A finished hypothesis of T tokens; fields as of `captioner.decoding.protocol.Hypothesis`."""

    tokens: list[int]
    token_log_probabilities: list[float]
    score: float
    attention: Array
    cut: bool


@dataclass(frozen=True)
class Rules:
    """The rules of `captioner.decoding.constraints.Constraints`, for arrays.

    repeatable: (V,) boolean. ngrams: (N,) sorted keys, or None.
    """

    options: SearchOptions
    repeatable: Array
    ngrams: Array | None

    def block(self, terms: Array, history: Array) -> None:
        """Set log-probabilities (B, K, V) that the tokens so far (B, K, t) rule out to -inf."""
        length, options = history.shape[-1], self.options
        ending = terms[..., END].clip(min=IMPOSSIBLE)  # (B, K)
        if length >= options.maximum_length:
            terms.fill(-math.inf)
            terms[..., END] = ending
            return
        terms[..., [PAD, START, UNKNOWN]] = -math.inf
        if self.ngrams is not None:
            self._block_unknown_ngrams(terms, history, self.ngrams)
        if length < options.minimum_length:
            terms[..., END] = -math.inf
            ending = np.full_like(ending, IMPOSSIBLE)  # Ranks last.
        sources, rows = np.indices(history.shape[:2])  # (B, K) each
        n = options.block_ngrams
        for first in range(length - n + 1 if n else 0):
            context = history[..., length - n + 1 :]  # (B, K, n - 1)
            repeats = (history[..., first : first + n - 1] == context).all(axis=-1)  # (B, K)
            last = history[..., first + n - 1]  # (B, K)
            terms[sources[repeats], rows[repeats], last[repeats]] = -math.inf
        for place in range(max(0, length - options.repeat_distance), length):
            token = history[..., place]  # (B, K)
            blocked = ~self.repeatable[token]  # (B, K)
            terms[sources[blocked], rows[blocked], token[blocked]] = -math.inf
        nothing_left = terms.max(axis=-1) == -math.inf  # (B, K)
        terms[..., END] = np.where(nothing_left, ending, terms[..., END])

    def _block_unknown_ngrams(self, terms: Array, history: Array, ngrams: Array) -> None:
        """Block all but the likeliest tokens that complete a known n-gram and clash with none."""
        size = terms.shape[-1]
        starts = np.full((*history.shape[:2], ORDER - 1), START)
        before = np.concatenate([starts, history], axis=-1)[..., 1 - ORDER :]  # (B, K, 3)
        tokens = np.argpartition(-terms, min(LIKELIEST, size) - 1, axis=-1)[..., :LIKELIEST]

        def has(keys: Array) -> Array:
            place = np.searchsorted(ngrams, keys).clip(max=len(ngrams) - 1)
            return np.asarray(ngrams[place] == keys)

        powers = size ** np.arange(ORDER - 1, 0, -1)  # (3,)
        is_known = has((before @ powers)[..., None] + tokens)  # (B, K, n)
        clashes = (history * powers[0] + START * powers[1:].sum())[..., None]  # (B, K, t, 1)
        clashes = clashes + tokens[..., None, :]  # (B, K, t, n)
        is_known &= ~has(clashes).any(axis=-2)  # (B, K, t, n) -> (B, K, n)
        likeliest = np.take_along_axis(terms, tokens, axis=-1)  # (B, K, n)
        likeliest[~is_known] = -math.inf
        terms.fill(-math.inf)
        np.put_along_axis(terms, tokens, likeliest, axis=-1)


def beam_search(
    step: Callable[[Array, Mapping[str, Array]], StepOutput],
    state: Mapping[str, Array],
    batch_size: int,
    rules: Rules,
) -> list[list[Hypothesis]]:
    """Decode B sources, best hypotheses first. step: takes the last tokens (B, K) and the state."""
    options = rules.options
    history = np.empty((batch_size, 1, 0), np.int64)  # (B, K, t)
    tokens = np.full((batch_size, 1), START)  # (B, K)
    path_terms = np.empty((batch_size, 1, 0))  # (B, K, t)
    maps: Array | None = None  # (B, K, t, L)
    totals = np.zeros((batch_size, 1))  # (B, K), -inf for rows that have ended
    ended = np.zeros(batch_size, np.int64)  # (B,)
    results: list[list[Hypothesis]] = [[] for _ in range(batch_size)]
    for _ in range(options.maximum_length + 1):
        log_probabilities, weights, state = step(tokens, state)
        rules.block(log_probabilities, history)
        candidates = totals[..., None] + log_probabilities  # (B, K, V)
        size = candidates.shape[-1]
        flat = candidates.reshape(batch_size, -1)  # (B, K * V)
        keep = min(options.beam, flat.shape[1])
        best = np.argpartition(-flat, keep - 1, axis=-1)[:, :keep]  # (B, K')
        order = np.argsort(-np.take_along_axis(flat, best, axis=-1), kind="stable")
        best = np.take_along_axis(best, order, axis=-1)
        scores = np.take_along_axis(flat, best, axis=-1)  # (B, K')
        parents, tokens = best // size, best % size  # (B, K') each

        def of_parents(rows: Array, parents: Array = parents) -> Array:
            """Rows (B, K, ...) -> (B, K', ...)."""
            index = parents.reshape(*parents.shape, *(1,) * (rows.ndim - 2))
            return np.take_along_axis(rows, index, axis=1)

        live = np.arange(keep) < options.beam - ended[:, None]  # (B, K')
        live &= scores > -math.inf
        terms = np.take_along_axis(log_probabilities.reshape(flat.shape), best, axis=-1)
        path_terms = np.concatenate([of_parents(path_terms), terms[..., None]], axis=-1)
        seen = of_parents(weights)[..., None, :]  # (B, K', 1, L)
        maps = seen if maps is None else np.concatenate([of_parents(maps), seen], axis=-2)
        past = of_parents(history)  # (B, K', t)
        for source, row in np.argwhere(live & (tokens == END)):
            path = path_terms[source, row]  # (T + 1,), the end's last
            penalty = ((5 + len(path)) / 6) ** options.length_normalisation
            hypothesis = Hypothesis(
                tokens=past[source, row].tolist(),
                token_log_probabilities=path.tolist(),
                score=float(path.sum()) / penalty,
                attention=maps[source, row, :-1],  # (T, L)
                cut=len(path) > options.maximum_length and bool(path[-1] < math.log(0.5)),
            )
            results[source].append(hypothesis)
            ended[source] += 1
        live &= tokens != END
        if not live.any():
            break
        totals = np.where(live, scores, -math.inf)
        history = np.concatenate([past, tokens[..., None]], axis=-1)  # (B, K', t + 1)
        state = {name: of_parents(each) for name, each in state.items()}
    for hypotheses in results:
        hypotheses.sort(key=lambda hypothesis: (hypothesis.cut, -hypothesis.score))
    return results
