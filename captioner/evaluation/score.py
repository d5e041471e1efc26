"""Scores captions given as strings, as table, JSON and CSV."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from captioner.csv_tables import Row, csv_records, text_table
from captioner.data.example import ImageId
from captioner.errors import UserError
from captioner.evaluation import DEFAULT_METRICS, METRICS
from captioner.evaluation.bleu import Bleu, bleu
from captioner.evaluation.cider import DocumentFrequency, cider_d
from captioner.evaluation.corpus import Corpus, FloatArray, Metric
from captioner.evaluation.hallucination import hallucination_table
from captioner.evaluation.java_metrics import check_java_metric, meteor, spice
from captioner.evaluation.rouge import rouge_l
from captioner.evaluation.significance import (
    RESAMPLES,
    Comparison,
    Interval,
    too_few_images,
)
from captioner.evaluation.word_precision import word_precision
from captioner.files import write_text
from captioner.text.tokenizer import tokenize_unsplit


@dataclass(frozen=True)
class CaptionTexts:
    """One caption of each of I images, as written, and all texts tokenised; made by `of`.

    references_without_caption: the number of further images with references.
    """

    images: Sequence[ImageId]
    captions: Sequence[str]
    corpus: Corpus
    references_without_caption: int = 0

    @classmethod
    def of(
        cls,
        captions: Sequence[str],
        references: Sequence[Sequence[str]],
        images: Sequence[ImageId] | None = None,
        references_without_caption: int = 0,
    ) -> CaptionTexts:
        """Tokenise captions and their references, in the same order of images.

        images: names, by default numbers from 0.
        """
        if len(captions) != len(references):
            raise UserError(
                f"there are {len(captions)} captions but references for {len(references)} images"
            )
        if len(captions) == 0:
            raise UserError("there are no captions to score")
        names = range(len(captions)) if images is None else images
        for name, text, of_image in zip(names, captions, references, strict=True):
            listed = isinstance(of_image, Collection) and not isinstance(of_image, str)
            if not listed or len(of_image) == 0:
                raise UserError(f"image {name!r} has no list of reference captions")
            if not all(isinstance(one, str) for one in (text, *of_image)):
                raise UserError(f"a caption of image {name!r} is not a string")
        corpus = Corpus.of(
            map(tokenize_unsplit, captions), (map(tokenize_unsplit, each) for each in references)
        )
        return cls(names, captions, corpus, references_without_caption)

    def with_captions(self, captions: Sequence[str]) -> CaptionTexts:
        """Other captions (I,) of the same images."""
        corpus = Corpus.of(map(tokenize_unsplit, captions), self.corpus.references)
        return replace(self, captions=captions, corpus=corpus)


@dataclass(frozen=True)
class Comparisons:
    """Two systems, by name, compared by each score."""

    first: str
    second: str
    scores: Mapping[str, Comparison]

    def table(self, confidence: float) -> str:
        """One line a score. confidence: the share of the intervals."""
        head = ("", "first", "second", "difference", f"{100 * confidence:g} %", "p bootstrap")
        rows = [(name, *vars(each).values()) for name, each in self.scores.items()]
        return f"first: {self.first}\nsecond: {self.second}\n{text_table([head, *rows])}"


@dataclass(frozen=True)
class CaptionScores:
    """The scores of I captions against their references; None for what was not asked for.

    metrics: by name, in the order of `METRICS`.
    frequency_images: of a document frequency that was given; by default these images count.
    diversity, fluency, hallucination: as from `text_diversity`, `fluency` and `chair`.
    intervals: of the scores, by name. confidence: the share of the intervals.
    exact: the share of captions that equal a reference.
    """

    texts: CaptionTexts
    metrics: Mapping[str, Metric]
    frequency_images: int | None = None
    diversity: dict[str, float | None] | None = None
    fluency: dict[str, float] | None = None
    hallucination: dict[str, Any] | None = None
    intervals: Mapping[str, Interval] | None = None
    comparison: Comparisons | None = None
    confidence: float | None = None
    exact: float | None = None

    @property
    def images(self) -> int:
        """The number of images, I."""
        return len(self.texts.images)

    def by_name(self) -> dict[str, float]:
        """The scores alone; all are fractions of one but `CIDEr-D`, which runs from 0 to 10."""
        return {
            name: score
            for metric in self.metrics.values()
            for name, score in zip(metric.names, metric.scores.tolist(), strict=True)
        }

    def per_image_by_name(self) -> dict[str, FloatArray]:
        """The scores (I,) of every image, by name; NaN for a caption without content words."""
        columns: dict[str, FloatArray] = {}
        for metric in self.metrics.values():
            columns.update(zip(metric.names, np.atleast_2d(metric.per_image.T), strict=False))
        return columns

    def per_image(self) -> list[dict[str, Any]]:
        """A row an image, in order: `image_id`, `caption`, and the scores by name; None for NaN."""
        columns = {
            name: [None if np.isnan(score) else float(score) for score in column]
            for name, column in self.per_image_by_name().items()
        }
        return [
            {
                "image_id": self.texts.images[index],
                "caption": self.texts.captions[index],
                **{name: column[index] for name, column in columns.items()},
            }
            for index in range(self.images)
        ]

    def as_dict(self) -> dict[str, Any]:
        """The scores of `by_name` with their circumstances; lengths are in words."""
        found: dict[str, Any] = dict(self.by_name())
        if isinstance(bleu := self.metrics.get("BLEU"), Bleu):
            found["brevity_penalty"] = bleu.brevity_penalty
            found["hypothesis_length"] = bleu.hypothesis_length
            found["reference_length"] = bleu.reference_length
        found["images"] = self.images
        found["references_without_caption"] = self.texts.references_without_caption
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
                rows = [(name.replace("_", " "), each) for name, each in found.items()]
                parts.append(text_table(rows))
        if self.hallucination is not None:
            parts.append(hallucination_table(self.hallucination))
        if self.comparison is not None and self.confidence is not None:
            parts.append(self.comparison.table(self.confidence) + note)
        return "\n\n".join(parts)

    def _rows(self) -> Iterator[Row]:
        intervals = self.intervals or {}
        for name, score in self.by_name().items():
            yield name, score, intervals.get(name, "")
        if isinstance(bleu := self.metrics.get("BLEU"), Bleu):
            yield "brevity penalty", bleu.brevity_penalty
            closest = f"closest references: {bleu.reference_length:,}"
            yield "words", bleu.hypothesis_length, closest
        yield "images", self.images
        if further := self.texts.references_without_caption:
            yield "not captioned", further, "more images that have references"
        if self.frequency_images is not None:
            yield "rarity", self.frequency_images, "images of the document frequency"
        if self.exact is not None:
            yield "exact match", self.exact
        if self.intervals is not None:
            what = f"confidence, {RESAMPLES:,} bootstrap resamples of the images"
            yield "in brackets", self.confidence, what

    def write_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a row an image: `image_id`, `caption` and its scores."""
        write_text(path, csv_records(self.per_image()))


def evaluate_captions(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    document_frequency: DocumentFrequency | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
) -> CaptionScores:
    """Score one caption an image against the image's references.

    hypotheses, references: in the same order of images. A caption may be empty; an image has at
        least one reference.
    document_frequency: of CIDEr-D; by default counted over the references of these images.
    metrics: some of `METRICS`.

    Raises `UserError`, naming the image, for one without references, and as `score_texts` does.
    """
    return score_texts(CaptionTexts.of(hypotheses, references), metrics, document_frequency)


def score_texts(
    texts: CaptionTexts,
    metrics: Sequence[str] = DEFAULT_METRICS,
    document_frequency: DocumentFrequency | None = None,
) -> CaptionScores:
    """Score texts as `evaluate_captions` does.

    Raises `UserError` for an unknown metric or one that cannot be run, and for CIDEr-D of a single
    image without a document frequency.
    """
    check_metrics(metrics)
    by_name: dict[str, Callable[[Corpus], Metric]] = {
        "BLEU": bleu,
        "ROUGE-L": rouge_l,
        "CIDEr-D": lambda corpus: cider_d(corpus, document_frequency),
        "word-precision": word_precision,
        "METEOR": meteor,
        "SPICE": spice,
    }
    found = {name: score(texts.corpus) for name, score in by_name.items() if name in metrics}
    frequency = document_frequency if "CIDEr-D" in metrics else None
    return CaptionScores(texts, found, None if frequency is None else frequency.images)


def check_metrics(metrics: Sequence[str]) -> None:
    """Raise `UserError` for no metrics, an unknown one and one that cannot be run here."""
    if isinstance(metrics, str) or len(metrics) == 0:
        raise UserError(f"metrics {metrics!r} is not a list of some of {', '.join(METRICS)}")
    for metric in metrics:
        if metric not in METRICS:
            raise UserError(f"metric {metric!r} is not one of {', '.join(METRICS)}")
        if metric in ("METEOR", "SPICE"):
            check_java_metric(metric)
