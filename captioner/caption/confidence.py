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
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import Field

from captioner.arrays import Array
from captioner.caption.caption import Caption
from captioner.schema import Config, Probability
from captioner.text.keywords import keywords_of
from captioner.text.languages import FUNCTION_WORDS

LEAST_OF_A_WORD = 4
"""Occurrences from which on a word gets an offset."""

WORD_RIDGE = 3.0
"""Ridge on the offsets of words: that of a rare word stays close to 0."""

NEWTON_STEPS = 25
"""Each doubles the digits; where all shares are 0, each lowers the intercept by 1."""


class ConfidenceWeights(Config):
    """By how much each regressor raises the logit of the confidence."""

    intercept: float = Field(description="logit where all regressors are 0")
    mean_log_probability: float = Field(description="of the mean over words and their end, in nats")
    content_log_probability: float = Field(0.0, description="of the mean of content words, in nats")
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


class Caution(Config):
    """By how much words that are likely true count in cautious captions."""

    least_likely: Probability = Field(0.65, description="confidence above which a word adds worth")
    nothing_true: float = Field(
        3.0, ge=0, description="penalty, in true words, on a caption without a true word"
    )


class Confidence(Config):
    """Calibrated confidence of a model's best captions, by its default search."""

    weights: ConfidenceWeights
    unsure_below: Probability = Field(0.25, description="captions of less confidence are unsure")
    highest: Probability = Field(1.0, description="of the captions that it was fitted to")
    words: WordWeights | None = Field(None, description="of content words; none in older models")
    least_true: Probability = Field(0.4, description="confidence above which a word raises a rank")
    cautious: Caution = Field(default_factory=Caution, description="of cautious captions")

    def judge(self, captions: Sequence[Caption], given: int = 0) -> list[Caption]:
        """Captions with `confidence`, `sure` and, if the model has any, `word_confidence` set.

        given: how many words at the beginning a person gave, which have no confidence and count
        neither for nor against the caption's.
        """
        free = [_without_beginning(caption, given) for caption in captions]
        scores = confidences(regressors(free), self.weights).tolist()
        judged = []
        for caption, rest, score in zip(captions, free, scores, strict=True):
            of_words = self._of_words(replace(rest, confidence=score))
            if of_words is not None:
                of_words = (None,) * given + of_words
            sure = score >= self.unsure_below
            judged.append(replace(caption, confidence=score, sure=sure, word_confidence=of_words))
        return judged

    def likely_truth(self, caption: Caption) -> float:
        """The sum of the word confidences above `least_true`; 0 without word confidences."""
        scores = [score for score in caption.word_confidence or () if score is not None]
        return sum(score - self.least_true for score in scores)

    def _of_words(self, caption: Caption) -> tuple[float | None, ...] | None:
        if self.words is None:
            return None
        weights = self.words
        slopes = (weights.probability, weights.caption, weights.both, weights.position)
        offsets = [weights.offsets.get(word, 0.0) for word in content_words([caption])]
        logits = weights.intercept + word_regressors([caption]) @ np.array(slopes)  # (W,)
        scores = iter(_logistic(logits + np.array(offsets)).tolist())
        return tuple(None if word in FUNCTION_WORDS else next(scores) for word in caption.words)


def _without_beginning(caption: Caption, count: int) -> Caption:
    """The caption without its first words, for its regressors."""
    terms = caption.word_log_probabilities
    return replace(
        caption,
        words=caption.words[count:],
        word_log_probabilities=terms[count:],
        log_probability=caption.log_probability - sum(terms[:count]),
    )


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


def sure_nouns(caption: Caption, least: float) -> tuple[str, ...]:
    """The keywords of an English caption: its nouns whose confidence is at least `least`, once.

    That of a compound is its last word's: "hot dog" is as sure as "dog". All nouns of a caption
    without word confidences.
    """
    scores = caption.word_confidence or [1.0] * len(caption.words)
    found = keywords_of(caption.words)
    return tuple(dict.fromkeys(word for word, place in found if (scores[place] or 0) >= least))


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


def confidences(features: Array, weights: ConfidenceWeights) -> Array:
    """Regressors (N, R) -> confidences (N,), from 0 to 1."""
    slopes = [value for name, value in weights if name != "intercept"]
    return _logistic(weights.intercept + features @ np.array(slopes))


def _logistic(logits: Array) -> Array:
    return np.asarray(np.exp(-np.logaddexp(0, -logits)))  # Large logits do not overflow.


def fit_weights(
    features: Array, shares: Array, counts: Array, ridge: float = 1.0
) -> ConfidenceWeights:
    """Fit the confidence of captions to regressors (N, R) and observed shares (N,).

    counts: (N,), how much each row counts. ridge: of `_fit_logistic`.
    """
    fitted, _ = _fit_logistic(features, shares, counts, features[:, :0], ridge)
    return ConfidenceWeights(**dict(zip(ConfidenceWeights.model_fields, fitted, strict=True)))


def fit_word_weights(captions: Sequence[Caption], truth: Array, counts: Array) -> WordWeights:
    """Fit the confidence of `content_words` of captions with a confidence.

    truth: (W,), 1 of words that are true. counts: (W,), how much each counts.
    """
    words = content_words(captions)
    frequent = sorted(word for word, count in Counter(words).items() if count >= LEAST_OF_A_WORD)
    is_word = np.array(words)[:, None] == np.array(frequent)  # (W, I)
    fitted, offsets = _fit_logistic(word_regressors(captions), truth, counts, is_word)
    values = dict(zip(WordWeights.model_fields, fitted, strict=False))
    return WordWeights(**values, offsets=dict(zip(frequent, offsets, strict=True)))


def _fit_logistic(
    features: Array, shares: Array, counts: Array, indicators: Array, ridge: float = 1.0
) -> tuple[list[float], list[float]]:
    """Maximum likelihood with a ridge on standardised regressors, by Newton's method.

    features: (N, R). shares: (N,), observed, from 0 to 1. counts: (N,), how much each row counts.
    indicators: (N, I), 0 or 1, with a ridge of `WORD_RIDGE`. Returns the intercept with the R
    weights of features, and the I weights of indicators.
    """
    mean, deviation = features.mean(axis=0), features.std(axis=0)  # (R,) each
    deviation = np.where(deviation > 1e-9, deviation, 1.0)
    ones = np.ones((len(features), 1))
    columns = np.hstack([ones, (features - mean) / deviation, indicators])  # (N, 1 + R + I)
    sizes = (1, features.shape[1], indicators.shape[1])
    ridges = np.repeat([0.0, ridge, WORD_RIDGE], sizes)  # (1 + R + I,)
    weights = np.zeros(len(ridges))
    for _ in range(NEWTON_STEPS):
        expected = _logistic(columns @ weights)  # (N,)
        gradient = columns.T @ (counts * (shares - expected)) - ridges * weights
        spread = counts * expected * (1 - expected)  # (N,)
        curvature = columns.T @ (spread[:, None] * columns) + np.diag(ridges)
        weights += np.linalg.solve(curvature, gradient)
    last = 1 + features.shape[1]
    slopes = weights[1:last] / deviation  # (R,)
    return [float(weights[0] - slopes @ mean), *slopes.tolist()], weights[last:].tolist()
