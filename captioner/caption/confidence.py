"""The confidence of a caption and of its words: calibrated scores.

A caption's confidence is the share of its content words that people are expected to use for the
photo: a logistic regression (Platt 1999, *Probabilistic Outputs for Support Vector Machines*; for
shares, Papke and Wooldridge 1996) on the log-probabilities of its words, content words apart, and
their number. That of a content word is the probability that a person says it, or the same in
other words: a logistic regression on its probability, its position, the caption's confidence, and
the word itself where calibration saw it often enough.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from captioner.caption.caption import Caption
from captioner.schema import Config, Probability
from captioner.text.languages import FUNCTION_WORDS

if TYPE_CHECKING:
    from torch import Tensor

Array = np.ndarray[Any, Any]

LEAST_OF_A_WORD = 4
"""Occurrences from which on a word gets an offset."""

WORD_RIDGE = 3.0
"""Ridge on the offsets of words, which a rare word hardly leaves 0."""


LEAST_TRUE = 0.4
"""Confidence from which on a word raises the rank of its caption."""


class ConfidenceWeights(Config):
    """By how much each regressor raises the logit of the confidence."""

    intercept: float = Field(description="logit where all regressors are 0")
    mean_log_probability: float = Field(
        description="weight of the mean over the caption's words and its ending, in nats"
    )
    content_log_probability: float = Field(
        0.0, description="of the mean over content words, in nats"
    )
    lowest_log_probability: float = Field(description="weight of the least probable word, in nats")
    words: float = Field(description="weight of the number of words")


class WordWeights(Config):
    """By how much each regressor raises the logit of a word's confidence."""

    intercept: float = Field(description="logit where all regressors are 0")
    probability: float = Field(description="weight of the word's probability")
    caption: float = Field(description="weight of the logit of the caption's confidence")
    both: float = Field(description="weight of the product of these two")
    position: float = Field(0.0, description="weight of the number of words before it")
    offsets: dict[str, float] = Field({}, description="added for these words")


class Confidence(Config):
    """Calibrated confidence of a model's best captions, by its default search."""

    weights: ConfidenceWeights
    unsure_below: Probability = Field(0.25, description="captions of less confidence are unsure")
    highest: Probability = Field(1.0, description="of the captions that it was fitted to")
    words: WordWeights | None = Field(None, description="of content words; none in older models")

    def judge(self, captions: Sequence[Caption]) -> list[Caption]:
        """Captions with `confidence`, `sure` and, if the model has any, `word_confidence` set."""
        scores = confidences(regressors(captions), self.weights).tolist()
        judged = [
            replace(caption, confidence=score, sure=score >= self.unsure_below)
            for caption, score in zip(captions, scores, strict=True)
        ]
        if self.words is None:
            return judged
        return [replace(caption, word_confidence=self._of_words(caption)) for caption in judged]

    def degree(self, confidence: float) -> int:
        """The third of confidences from the limit to the highest: 0, 1 or 2."""
        third = (self.highest - self.unsure_below) / 3
        return bisect([self.unsure_below + third, self.highest - third], confidence)

    def _of_words(self, caption: Caption) -> tuple[float | None, ...]:
        assert self.words is not None
        scores = iter(word_confidences([caption], self.words).tolist())
        return tuple(None if word in FUNCTION_WORDS else next(scores) for word in caption.words)


def likely_truth(caption: Caption) -> float:
    """The sum of the word confidences above `LEAST_TRUE`; 0 without word confidences."""
    scores = [score for score in caption.word_confidence or () if score is not None]
    return sum(score - LEAST_TRUE for score in scores)


def regressors(captions: Sequence[Caption]) -> Array:
    """N captions -> (N, R), float64: the terms of `ConfidenceWeights` but the intercept.

    The mean includes the ending. A caption without content words has its mean in their place.
    """
    rows = []
    for caption in captions:
        words, terms = caption.words, caption.word_log_probabilities
        mean = caption.log_probability / (len(words) + 1)
        pairs = zip(words, terms, strict=True)
        content = [term for word, term in pairs if word not in FUNCTION_WORDS] or [mean]
        rows.append((mean, sum(content) / len(content), min(terms, default=mean), len(words)))
    return np.array(rows, dtype=float).reshape(len(rows), 4)


def content_words(captions: Sequence[Caption]) -> list[str]:
    """The W content words of captions, in order."""
    return [word for caption in captions for word in caption.words if word not in FUNCTION_WORDS]


def word_regressors(captions: Sequence[Caption]) -> Array:
    """Captions with a confidence -> (W, R), a row for each of `content_words`.

    The R columns are those of `WordWeights` but the intercept and the offsets.
    """
    rows: list[tuple[float, ...]] = []
    for caption in captions:
        share = min(max(caption.confidence or 0.0, 1e-6), 1 - 1e-6)
        logit = math.log(share / (1 - share))
        pairs = zip(caption.words, caption.word_log_probabilities, strict=True)
        for position, (word, term) in enumerate(pairs):
            if word not in FUNCTION_WORDS:
                probability = math.exp(term)
                rows.append((probability, logit, probability * logit, position))
    return np.array(rows, dtype=float).reshape(len(rows), 4)


def word_confidences(captions: Sequence[Caption], weights: WordWeights) -> Array:
    """Captions with a confidence -> the confidences (W,) of their `content_words`."""
    slopes = (weights.probability, weights.caption, weights.both, weights.position)
    offsets = [weights.offsets.get(word, 0.0) for word in content_words(captions)]
    logits = weights.intercept + word_regressors(captions) @ np.array(slopes)  # (W,)
    return _logistic(logits + np.array(offsets))


def confidences(features: Array, weights: ConfidenceWeights) -> Array:
    """Regressors (N, R) -> confidences (N,), from 0 to 1."""
    slopes = [value for name, value in weights if name != "intercept"]
    return _logistic(weights.intercept + features @ np.array(slopes))


def _logistic(logits: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -logits)))  # Large logits do not overflow.


def fit_weights(
    features: Tensor, shares: Tensor, counts: Tensor, ridge: float = 1.0
) -> ConfidenceWeights:
    """Fit the confidence of captions to regressors (N, R) and observed shares (N,).

    counts: (N,), how much each row counts. ridge: of `_fit_logistic`.
    """
    fitted, _ = _fit_logistic(features, shares, counts, ridge)
    return ConfidenceWeights(**dict(zip(ConfidenceWeights.model_fields, fitted, strict=True)))


def fit_word_weights(captions: Sequence[Caption], truth: Tensor, counts: Tensor) -> WordWeights:
    """Fit the confidence of `content_words` of captions with a confidence.

    truth: (W,), 1 of words that are true. counts: (W,), how much each counts.
    """
    import torch

    words = content_words(captions)
    frequent = sorted(word for word, count in Counter(words).items() if count >= LEAST_OF_A_WORD)
    is_word = torch.tensor([[word == other for other in frequent] for word in words]).double()
    features = torch.from_numpy(word_regressors(captions))
    fitted, offsets = _fit_logistic(features, truth, counts, indicators=is_word)
    values = dict(zip(WordWeights.model_fields, fitted, strict=False))
    return WordWeights(**values, offsets=dict(zip(frequent, offsets, strict=True)))


def _fit_logistic(
    features: Tensor,
    shares: Tensor,
    counts: Tensor,
    ridge: float = 1.0,
    indicators: Tensor | None = None,
) -> tuple[list[float], list[float]]:
    """Maximum likelihood with a ridge on standardised regressors; deterministic.

    features: (N, R). shares: (N,), observed, from 0 to 1. counts: (N,), how much each row counts.
    indicators: (N, I), 0 or 1, with a ridge of `WORD_RIDGE`. Returns the intercept with the R
    weights of features, and the I weights of indicators.
    """
    import torch
    from torch.nn import functional

    deviation, mean = torch.std_mean(features, dim=0, correction=0)  # (R,) each
    deviation = torch.where(deviation > 1e-9, deviation, 1.0)
    indicators = features[:, :0] if indicators is None else indicators
    columns = torch.cat([(features - mean) / deviation, indicators], dim=1)  # (N, R + I)
    sizes = torch.tensor([features.shape[1], indicators.shape[1]])
    ridges = torch.tensor([ridge, WORD_RIDGE]).repeat_interleave(sizes)  # (R + I,)
    weights = torch.zeros(1 + columns.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [weights],
        max_iter=200,
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = weights[0] + columns @ weights[1:]  # (N,)
        terms = functional.binary_cross_entropy_with_logits(logits, shares, reduction="none")
        total = (counts * terms).sum() + (ridges * weights[1:].square()).sum() / 2
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    fitted = weights.detach()
    last = 1 + features.shape[1]
    slopes = fitted[1:last] / deviation  # (R,)
    return [float(fitted[0] - slopes @ mean), *slopes.tolist()], fitted[last:].tolist()
