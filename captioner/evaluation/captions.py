"""Scores captions given as strings, by every metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from captioner.data.records import ImageId
from captioner.errors import UserError
from captioner.evaluation.bleu import BleuScores, BleuStatistics, bleu_of_totals, bleu_statistics
from captioner.evaluation.cider import CiderScores, DocumentFrequency, corpus_cider_d
from captioner.evaluation.java_metrics import (
    MeteorScores,
    SpiceScores,
    check_meteor,
    check_spice,
    meteor,
    meteor_of_totals,
    spice,
)
from captioner.evaluation.metric_names import DEFAULT_METRICS, METRICS
from captioner.evaluation.ngrams import MAXIMUM_ORDER, FloatArray
from captioner.evaluation.rouge import RougeScores, corpus_rouge_l
from captioner.evaluation.significance import ImageTerms, Interval, mean_terms
from captioner.evaluation.texts import CaptionTexts, Tokenizer
from captioner.evaluation.word_precision import (
    WordPrecision,
    word_precision,
    word_precision_of_totals,
)
from captioner.text.tokenizer import tokenize_unsplit

WITH_NONE = "captions with none"
"""The share of captions without a content word that a reference has: beside word-precision."""

BLEU_NAMES = tuple(f"BLEU-{order}" for order in range(1, MAXIMUM_ORDER + 1))

Image = TypeVar("Image", bound=ImageId)


@dataclass(frozen=True)
class CaptionScores:
    """The scores of I captions against their references; None for metrics not asked for.

    texts: the captions. Each metric holds the score of the corpus and, as `per_image`, that of
        every image in their order. bleu_counts: the counts behind BLEU.
    document_frequency: the stored one behind CIDEr-D; None if counted over the references.
    document_frequency_name: of its file.
    """

    texts: CaptionTexts
    bleu: BleuScores | None = None
    bleu_counts: BleuStatistics | None = None
    rouge_l: RougeScores | None = None
    cider_d: CiderScores | None = None
    word_precision: WordPrecision | None = None
    meteor: MeteorScores | None = None
    spice: SpiceScores | None = None
    document_frequency: DocumentFrequency | None = None
    document_frequency_name: str = ""

    @property
    def images(self) -> int:
        """The number of images, I."""
        return len(self.texts)

    def by_name(self) -> dict[str, float]:
        """The scores alone; all are fractions of one but `CIDEr-D`, which runs from 0 to 10.

        `BLEU-1` to `BLEU-4`, `ROUGE-L`, `CIDEr-D`, `word-precision` with `captions with none`,
        `METEOR`, `SPICE`.
        """
        scores = {} if self.bleu is None else dict(zip(BLEU_NAMES, self.bleu.scores, strict=True))
        for name, metric in self._single().items():
            scores[name] = metric.score
            if isinstance(metric, WordPrecision):
                scores[WITH_NONE] = metric.captions_with_none
        return scores

    def per_image_by_name(self) -> dict[str, FloatArray]:
        """The scores (I,) of every image on its own, by the names of `score_names`.

        NaN for a caption without content words.
        """
        columns: dict[str, FloatArray] = {}
        if self.bleu is not None:
            columns.update(zip(BLEU_NAMES, self.bleu.per_image.T, strict=True))
        for name, metric in self._single().items():
            columns[name] = metric.per_image
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

    def terms(self) -> list[ImageTerms]:
        """The scores for `confidence_intervals` and `compare`, in the same order."""
        terms = []
        if self.bleu_counts is not None:
            terms.append(ImageTerms(BLEU_NAMES, self.bleu_counts.terms(), bleu_of_totals))
        for name, metric in self._single().items():
            if isinstance(metric, MeteorScores):
                score = lambda totals: meteor_of_totals(totals)[..., None]  # noqa: E731
                terms.append(ImageTerms((name,), metric.terms, score))
            elif isinstance(metric, WordPrecision):
                names = (name, WITH_NONE)
                of_totals = partial(word_precision_of_totals, images=self.images)
                terms.append(ImageTerms(names, metric.terms, of_totals))
            else:
                terms.append(mean_terms(name, metric.per_image))
        return terms

    def as_dict(self) -> dict[str, Any]:
        """The scores of `by_name` with their circumstances.

        With BLEU `brevity_penalty`, `hypothesis_length` and `reference_length` (words); `images`;
        `references_without_caption`, the number of further images with references; with a stored
        `document_frequency` its `file` and its number of `images`.
        """
        found: dict[str, Any] = dict(self.by_name())
        if self.bleu is not None:
            found["brevity_penalty"] = self.bleu.brevity_penalty
            found["hypothesis_length"] = self.bleu.hypothesis_length
            found["reference_length"] = self.bleu.reference_length
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
        lines = []
        for name, score in self.by_name().items():
            interval = (intervals or {}).get(name)
            beside = "" if interval is None else f"  [{interval.low:.4f}, {interval.high:.4f}]"
            label = "with none" if name == WITH_NONE else name
            lines.append(f"{label:<16}{score:.4f}{beside}")
        if self.bleu is not None:
            lines.append(f"{'brevity penalty':<16}{self.bleu.brevity_penalty:.4f}")
            lines.append(
                f"{'words':<16}{self.bleu.hypothesis_length:,} "
                f"(closest references: {self.bleu.reference_length:,})"
            )
        lines.append(f"{'images':<16}{self.images:,}")
        if self.texts.references_without_caption:
            lines.append(
                f"{'not captioned':<16}{self.texts.references_without_caption:,} "
                "more images that have references"
            )
        if self.document_frequency is not None:
            named = f" ({self.document_frequency_name})" if self.document_frequency_name else ""
            lines.append(
                f"{'rarity':<16}document frequency of {self.document_frequency.images:,} "
                f"images{named}"
            )
        return "\n".join(lines)

    def _single(
        self,
    ) -> dict[str, RougeScores | CiderScores | WordPrecision | MeteorScores | SpiceScores]:
        """The metrics with one score an image, by name; those that were asked for."""
        metrics = {
            "ROUGE-L": self.rouge_l,
            "CIDEr-D": self.cider_d,
            "word-precision": self.word_precision,
            "METEOR": self.meteor,
            "SPICE": self.spice,
        }
        return {name: metric for name, metric in metrics.items() if metric is not None}


def evaluate_captions(
    hypotheses: Mapping[Image, str] | Sequence[str],
    references: Mapping[Image, Sequence[str]] | Sequence[Sequence[str]],
    tokenizer: Tokenizer = tokenize_unsplit,
    document_frequency: DocumentFrequency | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
) -> CaptionScores:
    """Score one caption an image against the image's references.

    hypotheses, references: both by image, or both sequences in the same order of images. A caption
        may be empty; an image has at least one reference. By image, references of further images
        are ignored, as in the COCO evaluation.
    tokenizer: of captions and references; by default `tokenize_unsplit`. A word with white space in
        it is one word to ROUGE-L and several to the others.
    document_frequency: of CIDEr-D; by default counted over the references of these images.
    metrics: some of `METRICS`.

    Raises `UserError`, naming the image, for one without references, and as `score_texts` does.
    """
    check_metrics(metrics)
    texts = CaptionTexts.of(hypotheses, references, tokenizer)  # type: ignore[arg-type]
    return score_texts(texts, metrics, document_frequency)


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
    with_cider = "CIDEr-D" in metrics
    if with_cider and document_frequency is None and len(texts) == 1:
        raise UserError(
            "CIDEr-D of a single image needs a stored document frequency: make one of references "
            "with captioner document-frequency and give it to captioner score as "
            "--document-frequency FILE, or leave CIDEr-D out of the metrics"
        )
    with_words = "word-precision" in metrics
    counts = bleu_statistics(texts.corpus) if "BLEU" in metrics else None
    return CaptionScores(
        texts,
        bleu=None if counts is None else counts.scores(),
        bleu_counts=counts,
        rouge_l=corpus_rouge_l(texts.unsplit_corpus) if "ROUGE-L" in metrics else None,
        cider_d=corpus_cider_d(texts.corpus, document_frequency) if with_cider else None,
        word_precision=word_precision(texts.words, texts.reference_words) if with_words else None,
        meteor=meteor(texts.words, texts.reference_words) if "METEOR" in metrics else None,
        spice=spice(texts.words, texts.reference_words) if "SPICE" in metrics else None,
        document_frequency=document_frequency if with_cider else None,
        document_frequency_name=document_frequency_name if with_cider else "",
    )


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


def score_names(metrics: Sequence[str]) -> list[str]:
    """The names of the scores that these metrics give each image, in order."""
    names = [*(BLEU_NAMES if "BLEU" in metrics else ())]
    return names + [name for name in METRICS[1:] if name in metrics]
