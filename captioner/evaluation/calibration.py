"""Calibrates a model's confidence on its own captions and measures it by cross-fitting.

Each half of the validation photos is judged by a confidence fitted to the other half; the one that
is kept is fitted to all. So are pictures of nothing, validation photos with their pixels shuffled,
with a share of 0, so that their captions get a low confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence, fit_weights, regressors
from captioner.data.example import Example
from captioner.errors import UserError, counted
from captioner.evaluation.corpus import Corpus
from captioner.evaluation.score import caption_examples
from captioner.evaluation.word_precision import word_precision
from captioner.tables import Row, text_table

NOTHING_SHARE = 0.02
"""What all pictures of nothing count beside all photos."""

NOTHING_PICTURES = 16

LEAST_CAPTIONS = 8
"""Fewest captions of a split that a confidence is fitted to."""

Observed = list[tuple[Caption, float]]
"""Captions, each with its observed share of content words."""


@dataclass(frozen=True)
class CalibrationReport:
    """How reliable a confidence is on each validation split, by name, as from `_reliability`.

    nothing_unsure: the share of pictures of nothing that are unsure.
    """

    splits: dict[str, dict[str, Any]]
    nothing_unsure: float

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, for JSON."""
        return vars(self)

    def table(self) -> str:
        """Lines of text."""
        rows: list[Row] = []
        for name, found in self.splits.items():
            rows.append((name, "expected", "observed", "photos"))
            for number, fifth in enumerate(found["fifths"], start=1):
                rows.append((f"  fifth {number}", *fifth.values()))
            rows += [
                ("  all", found["expected"], found["observed"], found["photos"]),
                ("  unsure", found["unsure"]),
                ("  sure, and no content word true", found["sure_without"]),
            ]
        return text_table([*rows, ("pictures of nothing: unsure", self.nothing_unsure)])


def calibrate(
    captioner: Captioner,
    training: Sequence[Example],
    validation: Mapping[str, Sequence[Example]],
    unsure_below: float = 0.25,
    batch_size: int = 50,
) -> CalibrationReport:
    """Fit a captioner's confidence to all splits together, set it, and measure it by split.

    training: photos the model was trained on, which cannot be validation photos.
    validation: other photos, by the name of their split. unsure_below: of `Confidence`.
    """
    for name, examples in validation.items():
        shared = sorted({each.name for each in examples} & {each.name for each in training})
        if shared:
            raise UserError(
                f"{name} shares {counted(len(shared), 'photo')} with training, "
                f"{shared[0]!r} among them"
            )
    groups = [
        _observe(captioner, examples, name, batch_size) for name, examples in validation.items()
    ]
    groups.append(_observe_nothing(captioner, next(iter(validation.values()))))
    generator = np.random.default_rng(0)
    mixed = [[group[row] for row in generator.permutation(len(group))] for group in groups]
    halves = [[group[first::2] for group in mixed] for first in (0, 1)]
    of_first, of_second = (_fit(half, unsure_below) for half in halves)
    *splits, nothing = (
        _reliability([(of_second, one), (of_first, other)])
        for one, other in zip(*halves, strict=True)
    )
    captioner.confidence = _fit(groups, unsure_below)
    return CalibrationReport(dict(zip(validation, splits, strict=True)), nothing["unsure"])


def _observe(
    captioner: Captioner, examples: Sequence[Example], name: str, batch_size: int
) -> Observed:
    """Captions of a split; those without a content word are left out."""
    found = caption_examples(captioner, examples, batch_size=batch_size, shown_as=name)
    photos, captions = zip(*found, strict=True)
    corpus = Corpus([each.words for each in captions], [each.words for each in photos])
    shares = word_precision(corpus).per_image.tolist()  # (N,), NaN without a content word
    pairs = zip(captions, shares, strict=True)
    observed = [(caption, share) for caption, share in pairs if not math.isnan(share)]
    if len(observed) < LEAST_CAPTIONS:
        raise UserError(
            f"calibration needs {LEAST_CAPTIONS} captions with a content word, and the model wrote "
            f"{len(observed)} for {name}, of {counted(len(examples), 'photo')}"
        )
    return observed


def _observe_nothing(captioner: Captioner, examples: Sequence[Example]) -> Observed:
    """Captions of a few photos with their pixels shuffled, of which nothing is true."""
    generator = np.random.default_rng(0)
    pictures = []
    for example in examples[:NOTHING_PICTURES]:
        pixels = np.asarray(captioner.preprocessing.load(example.path))
        shuffled = generator.permutation(pixels.reshape(-1, 3)).reshape(pixels.shape)
        pictures.append(Image.fromarray(shuffled))
    return [(caption, 0.0) for caption in captioner.caption(pictures)]


def _fit(groups: Sequence[Observed], unsure_below: float) -> Confidence:
    """Fit to the splits, which count alike, whatever their sizes, and to pictures of nothing."""
    sizes, splits = [len(group) for group in groups], len(groups) - 1
    weights = np.array([1 / splits] * splits + [NOTHING_SHARE])
    counts = torch.from_numpy(np.repeat(weights * sum(sizes[:-1]) / sizes, sizes))  # (N,)
    captions, shares = zip(*chain.from_iterable(groups), strict=True)
    features = torch.from_numpy(regressors(captions))  # (N, R)
    fitted = fit_weights(features, torch.tensor(shares, dtype=torch.float64), counts)
    return Confidence(weights=fitted, unsure_below=unsure_below)


def _reliability(parts: Sequence[tuple[Confidence, Observed]]) -> dict[str, Any]:
    """Confidences held against the observed share of content words, by name.

    expected, observed: means over all photos. fifths: the same of a fifth of the photos, by
    confidence, the lowest first. unsure: share of photos whose caption is unsure. sure_without:
    share of photos whose caption is sure and has no content word of a reference.
    """
    judged = [each for fitted, part in parts for each in fitted.judge([each for each, _ in part])]
    scores = torch.tensor([caption.confidence for caption in judged], dtype=torch.float64)  # (N,)
    observed = chain.from_iterable(part for _, part in parts)
    shares = torch.tensor([share for _, share in observed], dtype=torch.float64)  # (N,)
    sure = torch.tensor([bool(caption.sure) for caption in judged])  # (N,)

    def means(rows: Tensor) -> dict[str, float]:
        expected, observed = float(scores[rows].mean()), float(shares[rows].mean())
        return {"expected": expected, "observed": observed, "photos": len(rows)}

    order = scores.argsort()
    return {
        **means(order),
        "fifths": [means(rows) for rows in order.tensor_split(5)],
        "unsure": float((~sure).double().mean()),
        "sure_without": float((sure & (shares == 0)).double().mean()),
    }
