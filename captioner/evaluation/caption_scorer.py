"""Scores captions: metrics, intervals, a comparison, diversity, hallucination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from captioner.data.coco_instances import CocoInstances, read_instances
from captioner.data.readers import read_captions
from captioner.data.records import ImageId
from captioner.data.synonyms import Synonyms, read_synonyms
from captioner.errors import UserError
from captioner.evaluation.caption_report import Comparisons, ScoreReport
from captioner.evaluation.captions import check_metrics, score_texts
from captioner.evaluation.cider import DocumentFrequency
from captioner.evaluation.diversity import text_diversity
from captioner.evaluation.evaluation_options import DEFAULT_METRICS, Resampling
from captioner.evaluation.hallucination import Hallucination, chair
from captioner.evaluation.results import read_results
from captioner.evaluation.significance import compare, confidence_intervals
from captioner.evaluation.texts import CaptionTexts
from captioner.text.tokenizer import tokenize_unsplit


@dataclass
class Scorer:
    """Scores captions as its fields say.

    metrics: some of `captioner.evaluation.evaluation_options.METRICS`.
    document_frequency: a file of `DocumentFrequency.write`, for CIDEr-D.
    intervals: compute confidence intervals, by `resampling`.
    against: a results file of another system, to compare with.
    training: the captions of training, a file in `training_format`; its split `train`, if it has
        splits.
    instances: files of COCO instances, to find hallucinated things; none skips that.
    synonyms: the word list for them; None for the packaged one.

    Reads its files at once, so that a bad one is refused before a model runs. Raises `UserError`
    for an ill-formed file and for a metric that cannot be run.
    """

    metrics: Sequence[str] = DEFAULT_METRICS
    document_frequency: str | Path | None = None
    intervals: bool = False
    resampling: Resampling = field(default_factory=Resampling)
    against: str | Path | None = None
    training: str | Path | None = None
    training_format: str = "coco"
    instances: Sequence[str | Path] = ()
    synonyms: str | Path | None = None

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        self._frequency: DocumentFrequency | None = None
        if self.document_frequency is not None:
            self._frequency = DocumentFrequency.read(self.document_frequency)
        self._against: dict[str, str] | None = None
        if self.against is not None:
            self._against = read_results(self.against)
        self._training: list[list[str]] | None = None
        if self.training is not None:
            self._training = _training_words(self.training, self.training_format)
        self._instances: CocoInstances | None = None
        if self.instances:
            self._instances = read_instances(self.instances)
            self._synonyms: Synonyms = read_synonyms(self.synonyms)
            self._instances.known_categories(self._synonyms)

    def check_images(self, image_ids: Sequence[ImageId], name: str) -> None:
        """Raise `UserError` for images that are not in the instance files or in `against`.

        name: of the captions, for the message.
        """
        if self._instances is not None:
            for image_id in image_ids:
                self._instances.categories(image_id)
        if self._against is not None:
            ours = set(map(str, image_ids))
            for images, others, here, there in (
                (ours, self._against.keys(), name, self.against),
                (self._against.keys(), ours, self.against, name),
            ):
                lacking = sorted(images - others)
                if lacking:
                    raise UserError(
                        f"only the same images can be compared: {there} lacks {len(lacking):,} of "
                        f"{here}, image {lacking[0]} for one"
                    )

    def report(self, texts: CaptionTexts, image_ids: Sequence[ImageId], name: str) -> ScoreReport:
        """Score the captions `name` of the images `image_ids` (I,).

        Raises `UserError` as `check_images` and `score_texts` do.
        """
        self.check_images(image_ids, name)
        frequency_name = str(self.document_frequency or "")
        scores = score_texts(texts, self.metrics, self._frequency, frequency_name)
        terms = list(scores.metrics.values())
        intervals = confidence_intervals(terms, self.resampling) if self.intervals else None
        comparison = None
        if self._against is not None:
            others = texts.with_captions([self._against[str(image_id)] for image_id in image_ids])
            against = score_texts(others, self.metrics, self._frequency, frequency_name)
            found = compare(terms, list(against.metrics.values()), self.resampling)
            comparison = Comparisons(name, str(self.against), found)
        return ScoreReport(
            scores,
            text_diversity(texts.words, self._training),
            self._hallucination(texts, image_ids),
            intervals,
            comparison,
            self.resampling if intervals or comparison else None,
        )

    def _hallucination(
        self, texts: CaptionTexts, image_ids: Sequence[ImageId]
    ) -> Hallucination | None:
        if self._instances is None:
            return None
        categories = [self._instances.categories(image_id) for image_id in image_ids]
        return chair(
            texts.words,
            texts.reference_words,
            categories,
            self._synonyms,
            self._instances.all_categories,
        )


def _training_words(training: str | Path, format: str) -> list[list[str]]:
    """The tokenised captions of training."""
    split = None if format == "coco" else "train"  # A file of COCO's is of one split.
    found = read_captions(format, training, None, split, check_files=False)
    return [tokenize_unsplit(caption) for image in found.images for caption in image.captions]
