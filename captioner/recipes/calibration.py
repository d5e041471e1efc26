"""Fitting a model's confidence to its own captions, and measuring it on others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from captioner.caption import Caption, Captioner
from captioner.caption.confidence import (
    UNSURE_BELOW,
    Confidence,
    ConfidenceConfig,
    fit_weights,
    regressors,
    with_mean,
)
from captioner.caption.familiarity import Familiarity, pooled_features
from captioner.data.outliers import OUTLIER_KINDS, OutlierKind, draw_outliers
from captioner.data.source import Source
from captioner.errors import UserError
from captioner.evaluation.calibration import auroc, reliability
from captioner.progress import progress_bar
from captioner.recipes.calibration_report import CalibrationReport, GroupScore
from captioner.text.function_words import FUNCTION_WORDS

_LEAST_TRAINING, _LEAST_VALIDATION = 8, 8
"""The fewest photos that anything can be fitted to."""

_OUTLIERS = 0.3
"""What all outliers together count, the photos being 1: more of it tells them apart a little better
and blurs what is said of photos."""


@dataclass(frozen=True)
class CalibrationOptions:
    """How a confidence is fitted.

    training_photos: how many of the training photos say what is familiar, spread evenly over them.
    outliers: generated pictures of each kind of `captioner.data.outliers`.
    unsure_below: a caption of less confidence is called unsure.
    seed: of the halves and of the pictures. batch_size: photos worked on at a time.

    Raises `UserError` naming the field that has no such value.
    """

    training_photos: int = 2000
    outliers: int = 40
    unsure_below: float = UNSURE_BELOW
    seed: int = 0
    batch_size: int = 50

    def __post_init__(self) -> None:
        for name, least in (
            ("training_photos", _LEAST_TRAINING),
            ("outliers", 1),
            ("seed", 0),
            ("batch_size", 1),
        ):
            if getattr(self, name) < least:
                shown = name.replace("_", " ")
                raise UserError(f"{shown} {getattr(self, name)} is not at least {least}")
        if not 0 <= self.unsure_below <= 1:
            raise UserError(f"unsure_below {self.unsure_below} is not between 0 and 1")


@dataclass(frozen=True)
class Observed:
    """N captions that a model found, and how much of each is right.

    features: (N, F) of their photos. shares: `content_share` of each, 0 for what is no photo.
    """

    captions: list[Caption]
    features: Tensor
    shares: list[float]


def content_share(words: Sequence[str], references: Sequence[Sequence[str]]) -> float | None:
    """The share of a caption's content words that occur in any of its references.

    words: of the caption. references: those of each reference. A word counts as often as it is
    said, in the very form: "dogs" is not "dog". None for a caption without a content word.
    """
    content = [word for word in words if word not in FUNCTION_WORDS]
    if not content:
        return None
    used = {word for reference in references for word in reference}
    return sum(word in used for word in content) / len(content)


def calibrate(
    captioner: Captioner,
    training: Source,
    validation: Source,
    options: CalibrationOptions | None = None,
) -> CalibrationReport:
    """Fit a captioner's confidence, put it into the captioner, and measure it.

    training: photos the model was trained on: what is familiar. validation: others, which the
    model captions by its own search; captions without a content word are left out.

    Fitted on one half of the validation photos and on some kinds of outliers, measured on the
    other half and on other kinds. Any confidence the captioner had is replaced.
    Raises `UserError` for too few photos, photos in both, and a photo that cannot be read.
    """
    options = CalibrationOptions() if options is None else options
    for name, source, least in (
        ("training", training, _LEAST_TRAINING),
        ("validation", validation, _LEAST_VALIDATION),
    ):
        if len(source) < least:
            raise UserError(
                f"calibration needs {least} {name} photos or more, and there are {len(source)}"
            )
    shared = sorted(set(training.names) & set(validation.names))
    if shared:
        raise UserError(
            f"{len(shared)} photos are in both the training and the validation split, "
            f"{shared[0]!r} among them"
        )
    captioner.confidence = None  # What is fitted to is captions as they are without it.
    familiar = _features(captioner, training, options)
    known = _observe_photos(captioner, validation, options)
    outliers = {kind: _observe_outliers(captioner, kind, options) for kind in OUTLIER_KINDS}
    fitting, measuring = _halves(known, options.seed)
    fitted_on = [found for kind, found in outliers.items() if not kind.held_out]
    confidence = fit_confidence(familiar, fitting, fitted_on, options.unsure_below)
    captioner.confidence = confidence
    held_out = {kind: found for kind, found in outliers.items() if kind.held_out}
    return _measure(confidence, measuring, held_out, len(fitting.captions))


def fit_confidence(
    familiar: Tensor,
    photos: Observed,
    outliers: Sequence[Observed],
    unsure_below: float = UNSURE_BELOW,
) -> Confidence:
    """A confidence from what was observed.

    familiar: (N, F) features of training photos. photos: of photos like them, not among them.
    outliers: what is no photo, by kind; all kinds together count `_OUTLIERS` times the photos.

    The intercept is fitted once more to the photos alone, of which the scores are to be true on
    the mean: outliers would lower them.
    """
    familiarity = Familiarity.fit(familiar, photos.features)
    groups = [photos, *outliers]
    features = torch.cat([_regressors(group, familiarity) for group in groups])  # (N, P)
    shares = torch.tensor([share for group in groups for share in group.shares]).double()  # (N,)
    counts = torch.ones_like(shares)  # (N,)
    beyond = len(photos.captions)
    if len(counts) > beyond:
        counts[beyond:] = _OUTLIERS * beyond / (len(counts) - beyond)
    weights = fit_weights(features, shares, counts)
    weights = with_mean(weights, features[:beyond], float(shares[:beyond].mean()))
    config = ConfidenceConfig(familiarity.config, weights, unsure_below)
    return Confidence(config, familiarity)


def _regressors(group: Observed, familiarity: Familiarity) -> Tensor:
    return regressors(group.captions, familiarity.unusualness(group.features).tolist())


def _features(captioner: Captioner, source: Source, options: CalibrationOptions) -> Tensor:
    """The features (N, F) of some photos of a source, spread evenly over it."""
    count = min(options.training_photos, len(source))
    rows = [index * len(source) // count for index in range(count)]
    progress = progress_bar("training photos", count, "images")
    found = []
    for first in range(0, count, options.batch_size):
        batch = rows[first : first + options.batch_size]
        photos = list(source.open_photos(batch).values())
        found.append(pooled_features(captioner.annotations(photos)))  # (B, F)
        progress.update(len(batch))
    progress.close()
    return torch.cat(found)


def _observe_photos(captioner: Captioner, source: Source, options: CalibrationOptions) -> Observed:
    captions: list[Caption] = []
    features, shares = [], []
    progress = progress_bar("validation photos", len(source), "images")
    for first in range(0, len(source), options.batch_size):
        rows = range(first, min(first + options.batch_size, len(source)))
        annotations = captioner.annotations(list(source.open_photos(rows).values()))
        pooled = pooled_features(annotations)  # (B, F)
        for row, caption, own in zip(
            rows, captioner.caption_annotations(annotations), pooled, strict=True
        ):
            share = content_share(caption.words, source.words[row])
            if share is not None:
                captions.append(caption)
                features.append(own)
                shares.append(share)
        progress.update(len(rows))
    progress.close()
    if len(captions) < _LEAST_VALIDATION:
        raise UserError(
            f"calibration needs {_LEAST_VALIDATION} captions with a content word or more, and the "
            f"model found {len(captions)}"
        )
    return Observed(captions, torch.stack(features), shares)


def _observe_outliers(
    captioner: Captioner, kind: OutlierKind, options: CalibrationOptions
) -> Observed:
    """Captions of generated pictures, of which nothing is right."""
    pictures = draw_outliers(kind, options.outliers, options.seed)
    captions: list[Caption] = []
    features = []
    progress = progress_bar(kind.name, len(pictures), "pictures")
    for first in range(0, len(pictures), options.batch_size):
        batch = pictures[first : first + options.batch_size]
        annotations = captioner.annotations(batch)
        features.append(pooled_features(annotations))  # (B, F)
        captions += captioner.caption_annotations(annotations)
        progress.update(len(batch))
    progress.close()
    return Observed(captions, torch.cat(features), [0.0] * len(captions))


def _halves(observed: Observed, seed: int) -> tuple[Observed, Observed]:
    """Two halves drawn at random."""
    order = numpy.random.default_rng(seed).permutation(len(observed.captions)).tolist()
    half = len(order) // 2
    first, last = (
        Observed(
            [observed.captions[row] for row in rows],
            observed.features[rows],
            [observed.shares[row] for row in rows],
        )
        for rows in (order[:half], order[half:])
    )
    return first, last


def _measure(
    confidence: Confidence,
    photos: Observed,
    outliers: dict[OutlierKind, Observed],
    fitted: int,
) -> CalibrationReport:
    own = _judged(confidence, photos)
    scores = [caption.confidence or 0.0 for caption in own]
    families: dict[str, list[Caption]] = {}
    kinds = {}
    for kind, observed in outliers.items():
        found = _judged(confidence, observed)
        kinds[kind.name] = _group(found, scores)
        families.setdefault(kind.family, []).extend(found)
    return CalibrationReport(
        fitted=fitted,
        photos=_group(own, None),
        reliability=reliability(scores, photos.shares),
        observed=sum(photos.shares) / len(photos.shares),
        families={name: _group(found, scores) for name, found in families.items()},
        kinds=kinds,
        unsure_below=confidence.config.unsure_below,
    )


def _judged(confidence: Confidence, observed: Observed) -> list[Caption]:
    unusual = confidence.familiarity.unusualness(observed.features).tolist()
    return [
        confidence.judge([caption], value)[0]
        for caption, value in zip(observed.captions, unusual, strict=True)
    ]


def _group(captions: Sequence[Caption], photos: Sequence[float] | None) -> GroupScore:
    scores = [caption.confidence or 0.0 for caption in captions]
    return GroupScore(
        count=len(captions),
        confidence=sum(scores) / len(scores),
        unsure=sum(caption.sure is False for caption in captions) / len(captions),
        unfamiliar=sum(caption.familiar is False for caption in captions) / len(captions),
        auroc=None if photos is None else auroc(photos, scores),
    )
