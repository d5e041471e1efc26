"""Scores captions given as strings: by name, image by image, as a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from captioner.csv_tables import Row, csv_text, text_table
from captioner.data.example import ImageId
from captioner.errors import UserError
from captioner.evaluation import CONFIDENCE, DEFAULT_METRICS, METRICS
from captioner.evaluation.bleu import Bleu, bleu
from captioner.evaluation.cider import DocumentFrequency, cider_d
from captioner.evaluation.corpus import Corpus, IntArray, Metric
from captioner.evaluation.hallucination import hallucination_table
from captioner.evaluation.java_metrics import check_java_metric, meteor, spice
from captioner.evaluation.rouge import rouge_l
from captioner.evaluation.significance import RESAMPLES, Comparison, Interval, too_few_images
from captioner.evaluation.word_precision import word_precision
from captioner.files import write_text
from captioner.text.tokenizer import tokenize_unsplit


@dataclass(frozen=True)
class Comparisons:
    """Two systems, by name, compared by each score."""

    first: str
    second: str
    scores: Mapping[str, Comparison]


@dataclass(frozen=True)
class CaptionScores:
    """The scores of I captions against their references; None for what was not asked for.

    image_ids: names. corpus: of the captions and their references.
    metrics: by name, in the order of `METRICS`.
    frequency_images: of a document frequency that was given; by default these images count.
    references_without_caption: the number of further images with references.
    diversity, fluency, hallucination: as from `text_diversity`, `fluency` and `chair`.
    intervals: of the scores, by name. confidence: the share of the intervals.
    exact: the share of captions that equal a reference.
    """

    image_ids: Sequence[ImageId]
    captions: Sequence[str]
    corpus: Corpus
    metrics: Mapping[str, Metric]
    frequency_images: int | None = None
    references_without_caption: int = 0
    diversity: dict[str, float] | None = None
    fluency: dict[str, float] | None = None
    hallucination: dict[str, Any] | None = None
    intervals: Mapping[str, Interval] | None = None
    comparison: Comparisons | None = None
    confidence: float | None = None
    exact: float | None = None

    @property
    def images(self) -> int:
        """The number of images, I."""
        return len(self.image_ids)

    def by_name(self) -> dict[str, float]:
        """The scores alone; all are fractions of one but `CIDEr-D`, which runs from 0 to 10."""
        return {
            name: score
            for metric in self.metrics.values()
            for name, score in zip(metric.names, metric.scores.tolist(), strict=True)
        }

    def per_image(self) -> list[dict[str, Any]]:
        """A row an image, in order: `image_id`, `caption`, and the scores by name.

        None stands for the word precision of a caption without content words.
        """
        columns: dict[str, list[Any]] = {
            "image_id": list(self.image_ids),
            "caption": list(self.captions),
        }
        for metric in self.metrics.values():
            for name, scores in zip(metric.names, np.atleast_2d(metric.per_image.T), strict=False):
                columns[name] = [None if score != score else score for score in scores.tolist()]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows of `per_image`."""
        write_text(path, csv_text(self.per_image()))

    def to_dict(self) -> dict[str, Any]:
        """The scores of `by_name` with their circumstances; lengths are in words."""
        found: dict[str, Any] = dict(self.by_name())
        if isinstance(bleu := self.metrics.get("BLEU"), Bleu):
            found |= bleu.lengths
        found["images"] = self.images
        found["references_without_caption"] = self.references_without_caption
        if self.confidence is not None:
            found["too_few_images"] = too_few_images(self.images) is not None
        asked = {
            "document_frequency": self.frequency_images and {"images": self.frequency_images},
            "diversity": self.diversity,
            "fluency": self.fluency,
            "exact match": self.exact,
            "hallucination": self.hallucination,
            "intervals": self.intervals and dict(self.intervals),
            "comparison": self.comparison and asdict(self.comparison),
            "confidence": self.confidence,
        }
        return found | {name: value for name, value in asked.items() if value is not None}

    def table(self) -> str:
        """All scores as lines of text."""
        few = too_few_images(self.images)
        note = "" if few is None else f"\nNOTE: {few}"
        parts = [text_table(list(self._rows())) + (note if self.intervals is not None else "")]
        for found in (self.diversity, self.fluency):
            if found is not None:
                parts.append(text_table([(k.replace("_", " "), v) for k, v in found.items()]))
        if self.hallucination is not None:
            parts.append(hallucination_table(self.hallucination))
        if (both := self.comparison) is not None:
            share = f"{100 * (self.confidence or CONFIDENCE):g} %"
            rows: list[Row] = [("", "first", "second", "difference", share, "p bootstrap")]
            rows += [(name, *vars(each).values()) for name, each in both.scores.items()]
            parts.append(f"first: {both.first}\nsecond: {both.second}\n{text_table(rows)}{note}")
        return "\n\n".join(parts)

    def _rows(self) -> Iterator[Row]:
        intervals = self.intervals or {}
        for name, score in self.by_name().items():
            yield name, score, intervals.get(name, "")
        if isinstance(bleu := self.metrics.get("BLEU"), Bleu):
            penalty, own, closest = bleu.lengths.values()
            yield "brevity penalty", penalty
            yield "words", own, f"closest references: {closest:,}"
        yield "images", self.images
        if further := self.references_without_caption:
            yield "not captioned", further, "more images that have references"
        if self.frequency_images is not None:
            yield "rarity", self.frequency_images, "images of the document frequency"
        if self.exact is not None:
            yield "exact match", self.exact
        if self.intervals is not None:
            what = f"confidence, {RESAMPLES:,} bootstrap resamples of the images"
            yield "in brackets", self.confidence, what


def evaluate_captions(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    document_frequency: DocumentFrequency | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    images: Sequence[ImageId] | None = None,
) -> CaptionScores:
    """Score one caption an image against the image's references.

    hypotheses, references: in the same order of images. A caption may be empty; an image has at
        least one reference.
    document_frequency: of CIDEr-D; by default counted over the references of these images.
    metrics: some of `METRICS`.
    images: names, by default numbers from 0.
    """
    check_metrics(metrics)
    if len(hypotheses) != len(references):
        raise UserError(
            f"there are {len(hypotheses)} captions but references for {len(references)} images"
        )
    if len(hypotheses) == 0:
        raise UserError("there are no captions to score")
    names = range(len(hypotheses)) if images is None else images
    for name, text, of_image in zip(names, hypotheses, references, strict=True):
        if isinstance(of_image, str) or not isinstance(of_image, Collection) or not of_image:
            raise UserError(f"image {name!r} has no list of reference captions")
        if not all(isinstance(one, str) for one in (text, *of_image)):
            raise UserError(f"a caption of image {name!r} is not a string")
    corpus = Corpus.of(
        map(tokenize_unsplit, hypotheses), (map(tokenize_unsplit, each) for each in references)
    )
    matches: list[IntArray] = []  # CIDEr-D comes first: it counts n-grams for BLEU too.
    by_name: dict[str, Callable[[Corpus], Metric]] = {
        "CIDEr-D": lambda corpus: cider_d(corpus, document_frequency, matches),
        "BLEU": lambda corpus: bleu(corpus, matches),
        "ROUGE-L": rouge_l,
        "word-precision": word_precision,
        "METEOR": meteor,
        "SPICE": spice,
    }
    found = {name: score(corpus) for name, score in by_name.items() if name in metrics}
    found = {name: found[name] for name in METRICS if name in found}
    frequency = document_frequency if "CIDEr-D" in metrics else None
    frequency_images = None if frequency is None else frequency.images
    return CaptionScores(names, hypotheses, corpus, found, frequency_images)


def check_metrics(metrics: Sequence[str]) -> None:
    """Raise `UserError` for an unknown metric and one that cannot be run here."""
    for metric in metrics:
        if metric not in METRICS:
            raise UserError(f"metric {metric!r} is not one of {', '.join(METRICS)}")
        if metric in ("METEOR", "SPICE"):
            check_java_metric(metric)
