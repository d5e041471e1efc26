"""Scores captions: metrics, intervals, a comparison, diversity, hallucination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from captioner.data.instances import read_instances
from captioner.data.readers import read_examples
from captioner.data.synonyms import read_synonyms
from captioner.errors import UserError
from captioner.evaluation.caption_report import Comparisons, ScoreReport
from captioner.evaluation.captions import CaptionScores, check_metrics, score_texts
from captioner.evaluation.cider import DocumentFrequency
from captioner.evaluation.diversity import text_diversity
from captioner.evaluation.evaluation_options import CONFIDENCE, DEFAULT_METRICS
from captioner.evaluation.hallucination import chair
from captioner.evaluation.metric import Metric
from captioner.evaluation.results import read_results
from captioner.evaluation.significance import compare, confidence_intervals
from captioner.evaluation.texts import CaptionTexts
from captioner.text.tokenizer import tokenize_unsplit


@dataclass
class Scorer:
    """Scores captions as its fields say.

    metrics: some of `captioner.evaluation.evaluation_options.METRICS`.
    document_frequency: a file of `DocumentFrequency.write`, for CIDEr-D.
    confidence: the share of the scores' confidence intervals; None for no intervals.
    against: a results file of another system, to compare with.
    training: the captions of training, a file in `training_format`; its split `train`, if it has
        splits.
    instances: files of COCO instances, to find hallucinated things; none skips that.
    synonyms: the word list for them; None for the packaged one.

    Raises `UserError` for a metric that cannot be run and a confidence out of range.
    """

    metrics: Sequence[str] = DEFAULT_METRICS
    document_frequency: str | Path | None = None
    confidence: float | None = None
    against: str | Path | None = None
    training: str | Path | None = None
    training_format: str = "coco"
    instances: Sequence[str | Path] = ()
    synonyms: str | Path | None = None

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        if set(self.metrics) == {"METEOR"} and (self.confidence is not None or self.against):
            raise UserError("METEOR has no interval and no comparison; choose another metric too")
        if self.confidence is not None and not 0 < self.confidence < 1:
            raise UserError(f"confidence {self.confidence} is not between 0 and 1")

    def report(self, texts: CaptionTexts, name: str) -> ScoreReport:
        """Score captions; reads the files first. name: of the captions, in a comparison.

        Raises `UserError` for an ill-formed file, for images that are not in the instance files or
        in `against`, and as `score_texts` does.
        """
        frequency, training, others, hallucination = None, None, None, None
        if self.document_frequency is not None:
            frequency = DocumentFrequency.read(self.document_frequency)
        if self.training is not None:
            training = _training_words(self.training, self.training_format)
        if self.against is not None:
            others = self._others(texts, name)
        if self.instances:
            hallucination = self._hallucination(texts)
        frequency_name = str(self.document_frequency or "")
        scores = score_texts(texts, self.metrics, frequency, frequency_name)
        terms = _resampled(scores)
        confidence = CONFIDENCE if self.confidence is None else self.confidence
        intervals, comparison = None, None
        if self.confidence is not None:
            intervals = confidence_intervals(terms, confidence)
        if others is not None:
            against = score_texts(others, self.metrics, frequency, frequency_name)
            found = compare(terms, _resampled(against), confidence)
            comparison = Comparisons(name, str(self.against), found)
        return ScoreReport(
            scores,
            text_diversity(texts.words, training),
            hallucination,
            intervals,
            comparison,
            confidence if intervals or comparison else None,
        )

    def _others(self, texts: CaptionTexts, name: str) -> CaptionTexts:
        """The captions to compare with."""
        captions = read_results(str(self.against))
        ours = set(map(str, texts.images))
        for images, others, here, there in (
            (ours, captions.keys(), name, self.against),
            (captions.keys(), ours, self.against, name),
        ):
            if lacking := sorted(images - others):
                raise UserError(
                    f"only the same images can be compared: {there} lacks {len(lacking):,} of "
                    f"{here}, image {lacking[0]} for one"
                )
        return texts.with_captions([captions[str(image)] for image in texts.images])

    def _hallucination(self, texts: CaptionTexts) -> dict[str, Any]:
        instances, synonyms = read_instances(self.instances), read_synonyms(self.synonyms)
        known = instances.known_categories(synonyms)
        categories = [instances.categories(image) for image in texts.images]
        return chair(texts.words, texts.reference_words, categories, synonyms, known)


def _resampled(scores: CaptionScores) -> list[Metric]:
    """The metrics that can be resampled: all but METEOR."""
    return [metric for metric in scores.metrics.values() if metric.terms.size]


def _training_words(training: str | Path, format: str) -> list[list[str]]:
    """The tokenised captions of training."""
    split = None if format == "coco" else "train"  # A file of COCO's is of one split.
    found = read_examples(format, training, None, split, check_files=False)
    return [tokenize_unsplit(caption) for image in found for caption in image.captions]
