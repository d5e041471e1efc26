"""The confidence of a caption: a calibrated score.

A caption's confidence is the share of its content words that people are expected to use for the
photo: a logistic regression (Platt 1999, *Probabilistic Outputs for Support Vector Machines*; for
shares, Papke and Wooldridge 1996) on the log-probabilities of its words, content words apart, and
their number. That of a content word is the probability that a person says it, or the same in
other words: a logistic regression on its probability, the caption's confidence and its kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy
from pydantic import Field

from captioner.caption.caption import Caption
from captioner.schema import Config, Probability
from captioner.text.kinds import KINDS, word_kinds
from captioner.text.languages import FUNCTION_WORDS

if TYPE_CHECKING:
    from torch import Tensor

Array = numpy.ndarray[Any, Any]


class ConfidenceWeights(Config):
    """By how much each regressor raises the logit of the confidence."""

    intercept: float = Field(description="logit where all regressors are 0")
    mean_log_probability: float = Field(
        description="weight of the mean over the caption's words and its ending, in nats"
    )
    content_log_probability: float = Field(
        0.0, description="weight of the mean over the content words, in nats"
    )
    lowest_log_probability: float = Field(description="weight of the least probable word, in nats")
    words: float = Field(description="weight of the number of words")


class WordWeights(Config):
    """By how much each regressor raises the logit of a word's confidence."""

    intercept: float = Field(description="logit of a thing where all regressors are 0")
    probability: float = Field(description="weight of the word's probability")
    caption: float = Field(description="weight of the logit of the caption's confidence")
    both: float = Field(description="weight of the product of these two")
    person: float = Field(0.0, description="added for nouns of people")
    action: float = Field(0.0, description="added for verbs and postures")
    quality: float = Field(0.0, description="added for adjectives and colours")
    place: float = Field(0.0, description="added for nouns of places, and adverbs")
    number: float = Field(0.0, description="added for numbers and quantities")


Weights = TypeVar("Weights", bound=ConfidenceWeights | WordWeights)


class Confidence(Config):
    """Calibrated confidence of a model's best captions, by its default search."""

    weights: ConfidenceWeights
    unsure_below: Probability = Field(0.25, description="captions of less confidence are unsure")
    doubtful_below: Probability = Field(0.5, description="words of less confidence are doubtful")
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
        return [replace(each, word_confidence=self._of_words(each)) for each in judged]

    def _of_words(self, caption: Caption) -> tuple[float | None, ...]:
        assert self.words is not None
        scores = iter(confidences(word_regressors([caption]), self.words).tolist())
        kinds = word_kinds(caption.words)
        return tuple(None if kind is None else next(scores) for kind in kinds)


def regressors(captions: Sequence[Caption]) -> Array:
    """N captions -> (N, R), float64, with the R columns of `ConfidenceWeights` but the intercept.

    The mean includes the ending. A caption without content words has its mean in their place.
    """
    rows = []
    for caption in captions:
        words, terms = caption.words, caption.word_log_probabilities
        mean = caption.log_probability / (len(words) + 1)
        pairs = zip(words, terms, strict=True)
        content = [term for word, term in pairs if word not in FUNCTION_WORDS] or [mean]
        rows.append((mean, sum(content) / len(content), min(terms, default=mean), len(words)))
    return numpy.array(rows, dtype=float).reshape(len(rows), 4)


def word_regressors(captions: Sequence[Caption]) -> Array:
    """Captions with a confidence -> (N, R), a row for each of their content words, in order.

    The R columns are those of `WordWeights` but the intercept.
    """
    rows: list[tuple[float, ...]] = []
    for caption in captions:
        sure = min(max(caption.confidence or 0.0, 1e-6), 1 - 1e-6)
        logit = math.log(sure / (1 - sure))
        kinds = word_kinds(caption.words)
        for kind, term in zip(kinds, caption.word_log_probabilities, strict=True):
            if kind is not None:
                own = math.exp(term)
                rows.append((own, logit, own * logit, *(kind == each for each in KINDS[1:])))
    return numpy.array(rows, dtype=float).reshape(len(rows), 2 + len(KINDS))


def confidences(features: Array, weights: ConfidenceWeights | WordWeights) -> Array:
    """Regressors (N, R) -> confidences (N,), from 0 to 1."""
    slopes = [value for name, value in weights if name != "intercept"]
    logits = weights.intercept + features @ numpy.array(slopes)  # (N,)
    return 1 / (1 + numpy.exp(-logits))  # type: ignore[no-any-return]


def fit_weights(
    kind: type[Weights], features: Tensor, shares: Tensor, counts: Tensor, ridge: float = 1.0
) -> Weights:
    """Maximum likelihood with a ridge on standardised regressors; deterministic.

    kind: of the weights. features: (N, R). shares: (N,), observed, from 0 to 1. counts: (N,), how
    much each row counts.
    """
    import torch
    from torch.nn import functional

    deviation, mean = torch.std_mean(features, dim=0, correction=0)  # (R,) each
    deviation = torch.where(deviation > 1e-9, deviation, 1.0)
    standard = (features - mean) / deviation  # (N, R)
    weights = torch.zeros(1 + features.shape[1], dtype=torch.float64, requires_grad=True)
    limits: Any = {"max_iter": 200, "tolerance_grad": 1e-10, "tolerance_change": 1e-14}
    optimizer = torch.optim.LBFGS([weights], line_search_fn="strong_wolfe", **limits)

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = weights[0] + standard @ weights[1:]  # (N,)
        each = functional.binary_cross_entropy_with_logits(logits, shares, reduction="none")
        total = (counts * each).sum() + ridge / 2 * weights[1:].square().sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    fitted = weights.detach()
    slopes = fitted[1:] / deviation  # (R,)
    values = [float(fitted[0] - slopes @ mean), *slopes.tolist()]
    return kind(**dict(zip(kind.model_fields, values, strict=True)))
