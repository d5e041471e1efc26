"""Scores captions given as strings, by every metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from captioner.errors import UserError
from captioner.evaluation.bleu import Bleu, bleu
from captioner.evaluation.cider import DocumentFrequency, cider_d
from captioner.evaluation.corpus import FloatArray
from captioner.evaluation.evaluation_options import DEFAULT_METRICS, METRICS
from captioner.evaluation.java_metrics import check_meteor, check_spice, meteor, spice
from captioner.evaluation.metric import Metric
from captioner.evaluation.rouge import rouge_l
from captioner.evaluation.significance import Interval
from captioner.evaluation.text_table import Row, text_table
from captioner.evaluation.texts import CaptionTexts
from captioner.evaluation.word_precision import word_precision


@dataclass(frozen=True)
class CaptionScores:
    """The scores of I captions against their references.

    texts: the captions. metrics: by name, those asked for, in the order of `METRICS`.
    document_frequency: the stored one behind CIDEr-D; None if counted over the references.
    document_frequency_name: of its file.
    """

    texts: CaptionTexts
    metrics: Mapping[str, Metric]
    document_frequency: DocumentFrequency | None = None
    document_frequency_name: str = ""

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
        """The scores (I,) of every image on its own, by name.

        NaN for a caption without content words.
        """
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
        if bleu := self._bleu:
            found["brevity_penalty"] = bleu.brevity_penalty
            found["hypothesis_length"] = bleu.hypothesis_length
            found["reference_length"] = bleu.reference_length
        found["images"] = self.images
        found["references_without_caption"] = self.texts.references_without_caption
        if self.document_frequency is not None:
            found["document_frequency"] = {
                "file": self.document_frequency_name,
                "images": self.document_frequency.images,
            }
        return found

    def table(self, intervals: Mapping[str, Interval] | None = None) -> str:
        """The scores as lines of text, one a metric, with `intervals` by name beside them."""
        return text_table(self.rows(intervals or {}))

    def rows(self, intervals: Mapping[str, Interval]) -> list[Row]:
        """The rows of the table."""
        rows: list[Row] = [
            (name, score, intervals.get(name, "")) for name, score in self.by_name().items()
        ]
        if bleu := self._bleu:
            closest = f"closest references: {bleu.reference_length:,}"
            rows.append(("brevity penalty", bleu.brevity_penalty))
            rows.append(("words", bleu.hypothesis_length, closest))
        rows.append(("images", self.images))
        if further := self.texts.references_without_caption:
            rows.append(("not captioned", further, "more images that have references"))
        if self.document_frequency is not None:
            whose = f"images of the document frequency {self.document_frequency_name}"
            rows.append(("rarity", self.document_frequency.images, whose))
        return rows

    @property
    def _bleu(self) -> Bleu | None:
        bleu = self.metrics.get("BLEU")
        return bleu if isinstance(bleu, Bleu) else None


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
    document_frequency_name: str = "",
) -> CaptionScores:
    """Score texts as `evaluate_captions` does.

    Raises `UserError` if there is no image, for an unknown metric or one that cannot be run, and
    for CIDEr-D of a single image without a document frequency.
    """
    check_metrics(metrics)
    words, reference_words = texts.words, texts.reference_words
    scorers: dict[str, Callable[[], Metric]] = {
        "BLEU": lambda: bleu(texts.corpus),
        "ROUGE-L": lambda: rouge_l(texts.unsplit_corpus),
        "CIDEr-D": lambda: cider_d(texts.corpus, document_frequency),
        "word-precision": lambda: word_precision(words, reference_words),
        "METEOR": lambda: meteor(words, reference_words),
        "SPICE": lambda: spice(words, reference_words),
    }
    found = {name: score() for name, score in scorers.items() if name in metrics}
    if "CIDEr-D" not in metrics:
        return CaptionScores(texts, found)
    return CaptionScores(texts, found, document_frequency, document_frequency_name)


def check_metrics(metrics: Sequence[str]) -> None:
    """Raise `UserError` for no metrics, an unknown one and one that cannot be run here."""
    if isinstance(metrics, str) or len(metrics) == 0:
        raise UserError(f"metrics {metrics!r} is not a list of some of {', '.join(METRICS)}")
    for metric in metrics:
        if metric not in METRICS:
            raise UserError(f"metric {metric!r} is not one of {', '.join(METRICS)}")
    if "METEOR" in metrics:
        check_meteor()
    if "SPICE" in metrics:
        check_spice()
