"""Calibrates a model's confidence on its own captions and measures it by cross-fitting.

Each half of the validation photos is judged by a confidence fitted to the other half. So are
pictures of nothing, photos with shuffled pixels, whose captions have a share of 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from PIL import Image

from captioner.caption.caption import Caption
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import (
    Confidence,
    content_words,
    fit_weights,
    fit_word_weights,
    regressors,
)
from captioner.data.example import Example
from captioner.errors import UserError, counted
from captioner.evaluation import Figures, Scores
from captioner.evaluation.corpus import Corpus, FloatArray, IntArray
from captioner.evaluation.score import caption_examples
from captioner.evaluation.wording import true_words, word_precision
from captioner.tables import Row, text_table
from captioner.text.languages import WORD_KINDS, word_kinds

NOTHING_SHARE = 0.02  # Weight of all pictures of nothing, as a share of that of all photos.
NOTHING_PICTURES = 16
LEAST_CAPTIONS = 8  # Fewest captions of a split that a confidence is fitted to.


class Observation(NamedTuple):
    """A caption, its share of content words that a reference has, and which of these are true."""

    caption: Caption
    share: float
    truth: list[bool]


Observed = list[Observation]


@dataclass(frozen=True)
class CalibrationReport(Scores):
    """How reliable a confidence is by split, and how many pictures of nothing are unsure."""

    splits: dict[str, Figures]
    nothing_unsure: float

    def table(self) -> str:
        rows: list[Row] = []
        for name, figures in self.splits.items():
            rows.append((name, "expected", "observed", "photos"))
            for number, fifth in enumerate(figures["fifths"], start=1):
                rows.append((f"  fifth {number}", *fifth.values()))
            rows.append(("  all", figures["expected"], figures["observed"], figures["photos"]))
            rows += [(f"  {name}", *means.values()) for name, means in figures["words"].items()]
            rows.append(("  unsure", figures["unsure"]))
            rows.append(("  sure, and no content word true", figures["sure_without"]))
        return text_table([*rows, ("pictures of nothing: unsure", self.nothing_unsure)])


def calibrate(
    captioner: Captioner,
    validation: Mapping[str, Sequence[Example]],
    unsure_below: float = 0.25,
    batch_size: int = 50,
    left_out: dict[str, str] | None = None,
) -> CalibrationReport:
    """Fit a captioner's confidence to all splits together, set it, and measure it by split.

    With `truth_weight` the confidence that is set chooses other captions than it was measured on.

    validation: photos that training did not use, by the name of their split. unsure_below: of
        `Confidence`. left_out: of `caption_examples`.
    """
    first = next(iter(validation.values()))
    options: Figures = {"batch_size": batch_size, "left_out": left_out}

    def observe() -> list[Observed]:
        """Captions of each split, and of pictures of nothing, the last group."""
        groups = [_observe(captioner, each, name, options) for name, each in validation.items()]
        readable = [photo for photo in first if photo.name not in (left_out or ())]
        return [*groups, _observe_nothing(captioner, readable)]

    captioner.confidence = None  # Else the result would depend on the one before.
    groups = observe()
    if captioner.search.truth_weight:
        # Word confidences choose the captions that a confidence is fitted to.
        captioner.confidence = _fit(groups, unsure_below)
        groups = observe()
    generator = np.random.default_rng(0)
    shuffled = [[group[row] for row in generator.permutation(len(group))] for group in groups]
    of_first = _fit([group[::2] for group in shuffled], unsure_below)
    of_second = _fit([group[1::2] for group in shuffled], unsure_below)
    halves = [[(of_second, group[::2]), (of_first, group[1::2])] for group in shuffled]
    found = list(map(_reliability, halves))
    captioner.confidence = _fit(groups, unsure_below)
    splits = dict(zip(validation, found[:-1], strict=True))
    return CalibrationReport(splits, nothing_unsure=found[-1]["unsure"])


def _observe(
    captioner: Captioner, examples: Sequence[Example], name: str, options: Figures
) -> Observed:
    """Captions of a split; those without a content word are left out."""
    pairs = caption_examples(captioner, examples, shown_as=name, **options)
    photos, captions = zip(*pairs, strict=True)
    corpus = Corpus([caption.words for caption in captions], [photo.words for photo in photos])
    shares = word_precision(corpus).per_image.tolist()  # (N,), NaN without a content word
    observed = []
    for photo, caption, share in zip(photos, captions, shares, strict=True):
        truth = [known for known in true_words(caption.words, photo.words) if known is not None]
        if truth:
            observed.append(Observation(caption, share, truth))
    if len(observed) < LEAST_CAPTIONS:
        needed = f"calibration needs {LEAST_CAPTIONS} captions with a content word"
        written = f"{len(observed)} for {name}, of {counted(len(examples), 'photo')}"
        raise UserError(f"{needed}, and the model wrote {written}")
    return observed


def _observe_nothing(captioner: Captioner, examples: Sequence[Example]) -> Observed:
    """Captions of a few photos with their pixels shuffled, of which nothing is true."""
    generator = np.random.default_rng(0)
    pictures = []
    for example in examples[:NOTHING_PICTURES]:
        pixels = np.asarray(captioner.preprocessing.load(example.source))
        shuffled = generator.permutation(pixels.reshape(-1, 3)).reshape(pixels.shape)
        pictures.append(Image.fromarray(shuffled))
    captions = captioner.caption(pictures)
    return [Observation(each, 0.0, [False] * len(content_words([each]))) for each in captions]


def _fit(groups: Sequence[Observed], unsure_below: float) -> Confidence:
    """Fit to splits, which count alike, and to pictures of nothing, the last group.

    Words are fitted to the splits alone: pictures of nothing, whose words are false, outweigh them.
    """
    splits, nothing = groups[:-1], groups[-1]
    size = sum(map(len, splits)) / len(splits)  # How much each split counts.
    weights = [size / len(split) for split in splits for _ in split]
    weights += [NOTHING_SHARE * size * len(splits) / len(nothing)] * len(nothing)
    captions, shares, _ = zip(*chain.from_iterable(groups), strict=True)
    fitted = fit_weights(regressors(captions), np.array(shares), np.array(weights))
    confidence = Confidence(weights=fitted, unsure_below=unsure_below)
    seen = list(chain.from_iterable(splits))
    counts = [weight for one, weight in zip(seen, weights, strict=False) for _ in one.truth]
    judged = confidence.judge([one.caption for one in seen])
    truth = [is_true for one in seen for is_true in one.truth]
    words = fit_word_weights(judged, np.array(truth), np.array(counts))
    highest = max(caption.confidence or 0.0 for caption in judged)
    return confidence.replace(words=words, highest=highest)


def _reliability(parts: Sequence[tuple[Confidence, Observed]]) -> Figures:
    """Confidences held against the observed share of content words, by name.

    expected, observed: means over all photos. fifths: the same of a fifth of the photos, the least
    confident first. words: of the content words by fifths, kinds and all. unsure: share of photos
    with an unsure caption. sure_without: with a sure one that has no content word of a reference.
    """
    seen = list(chain.from_iterable(part for _, part in parts))
    of_parts = (fitted.judge([one.caption for one in part]) for fitted, part in parts)
    judged = list(chain.from_iterable(of_parts))
    scores = np.array([caption.confidence for caption in judged])  # (N,)
    shares = np.array([one.share for one in seen])  # (N,)
    sure = np.array([bool(caption.sure) for caption in judged])  # (N,)
    return {
        **_means(scores, shares, np.arange(len(seen)), "photos"),
        "fifths": [_means(scores, shares, fifth, "photos") for fifth in _fifths(scores)],
        "words": _word_reliability(judged, [is_true for one in seen for is_true in one.truth]),
        "unsure": float((~sure).mean()),
        "sure_without": float((sure & (shares == 0)).mean()),
    }


def _word_reliability(captions: Sequence[Caption], truth: Sequence[bool]) -> Figures:
    """Confidences of the content words (W,) of captions held against their `truth`, by group."""
    of_words = chain.from_iterable(caption.word_confidence or () for caption in captions)
    confidence = np.array([score for score in of_words if score is not None])
    kinds = [kind for caption in captions for kind in word_kinds(caption.words) if kind]
    fifths = enumerate(_fifths(confidence), start=1)
    groups = {f"words, fifth {number}": rows for number, rows in fifths}
    groups |= {kind: np.flatnonzero(np.array(kinds) == kind) for kind in WORD_KINDS}
    groups["all words"] = np.arange(len(truth))
    named = {name: rows for name, rows in groups.items() if len(rows)}
    observed = np.array(truth)
    return {name: _means(confidence, observed, rows, "words") for name, rows in named.items()}


def _fifths(scores: FloatArray) -> list[IntArray]:
    return np.array_split(scores.argsort(kind="stable"), 5)


def _means(scores: FloatArray, observed: FloatArray, rows: IntArray, unit: str) -> dict[str, float]:
    confidence, share = float(scores[rows].mean()), float(observed[rows].mean())
    return {"expected": confidence, "observed": share, unit: len(rows)}
