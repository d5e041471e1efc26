"""Scores a result file, and a model on a data set."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.data.example import ImageId
from captioner.data.instances import read_instances
from captioner.data.parallel import read_lines
from captioner.data.readers import read_examples
from captioner.data.synonyms import read_synonyms
from captioner.errors import UserError
from captioner.evaluation import CONFIDENCE, DEFAULT_METRICS
from captioner.evaluation.caption_source import caption_examples
from captioner.evaluation.cider import DocumentFrequency
from captioner.evaluation.corpus import Metric
from captioner.evaluation.diversity import text_diversity
from captioner.evaluation.fluency import fluency
from captioner.evaluation.hallucination import chair
from captioner.evaluation.score import (
    CaptionScores,
    CaptionTexts,
    Comparisons,
    check_metrics,
    score_texts,
)
from captioner.evaluation.significance import compare, confidence_intervals
from captioner.files import read_json, write_json
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.tokenizer import tokenize, tokenize_unsplit

if TYPE_CHECKING:  # They bring torch, which scoring a file can do without.
    from captioner.caption import Captioner
    from captioner.data.example import Example
    from captioner.decoding import SearchOptions


@dataclass
class Scorer:
    """Scores captions as its fields say.

    metrics: some of `METRICS`.
    document_frequency: a file of captions in `format`, all splits, over which CIDEr-D counts how
        rare n-grams are; None counts over the references.
    confidence: the share of the scores' confidence intervals; None for no intervals.
    against: a results file of another system, to compare with.
    training: the captions of training, a file in `format`; its split `train`, if it has splits.
    instances: files of COCO instances, to find hallucinated things; none skips that.
    synonyms: the word list for them; None for the packaged one.
    fluency: a file of people's captions that the model has not learned from, one a line.

    Raises `UserError` for a metric that cannot be run and a confidence out of range.
    """

    metrics: Sequence[str] = DEFAULT_METRICS
    document_frequency: str | Path | None = None
    confidence: float | None = None
    against: str | Path | None = None
    training: str | Path | None = None
    format: str = "coco"
    instances: Sequence[str | Path] = ()
    synonyms: str | Path | None = None
    fluency: str | Path | None = None

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        if set(self.metrics) == {"METEOR"} and (self.confidence is not None or self.against):
            raise UserError("METEOR has no interval and no comparison; choose another metric too")
        self.people = None if self.fluency is None else _people(self.fluency)
        if self.confidence is not None and not 0 < self.confidence < 1:
            raise UserError(f"confidence {self.confidence} is not between 0 and 1")

    def score(self, texts: CaptionTexts, name: str) -> CaptionScores:
        """Score captions. name: of their system, in a comparison."""
        frequency, training, others, hallucination = None, None, None, None
        if self.document_frequency is not None:
            of_images = self._tokenised(self.document_frequency, None)
            frequency = DocumentFrequency.from_references(list(of_images))
        if self.training is not None:
            split = None if self.format == "coco" else "train"  # A file of COCO is of one split.
            of_images = self._tokenised(self.training, split, tokenize_unsplit)
            training = (words for captions in of_images for words in captions)
        if self.against is not None:
            others = self._others(texts, name)
        if self.instances:
            hallucination = self._hallucination(texts)
        diversity = text_diversity(list(texts.corpus.captions), training)
        scores = score_texts(texts, self.metrics, frequency)
        terms = _resampled(scores)
        confidence = CONFIDENCE if self.confidence is None else self.confidence
        intervals, comparison = None, None
        if self.confidence is not None:
            intervals = confidence_intervals(terms, confidence)
        if others is not None:
            against = _resampled(score_texts(others, self.metrics, frequency))
            comparison = Comparisons(name, str(self.against), compare(terms, against, confidence))
        captions, references = list(texts.corpus.captions), list(texts.corpus.references)
        return replace(
            scores,
            diversity=diversity,
            fluency=None if self.people is None else fluency(captions, references, self.people),
            hallucination=hallucination,
            intervals=intervals,
            comparison=comparison,
            confidence=confidence if intervals or comparison else None,
        )

    def _tokenised(
        self,
        file: str | Path,
        split: str | None,
        split_words: Callable[[str], list[str]] = tokenize,
    ) -> Iterator[list[list[str]]]:
        """The words of each image's captions in a file."""
        for image in read_examples(self.format, file, None, split, check_files=False):
            yield list(map(split_words, image.captions))

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
        captions, references = list(texts.corpus.captions), list(texts.corpus.references)
        return chair(captions, references, categories, synonyms, known)


def _people(file: str | Path) -> PeoplesNgrams:
    """The n-grams of people's captions, one a line, which may be blank."""
    captions = [tokenize(line) for line in read_lines(file) if line.strip()]
    if not captions:
        raise UserError(f"{file} has no captions; give people's captions, one a line")
    return PeoplesNgrams(captions)


def _resampled(scores: CaptionScores) -> list[Metric]:
    """The metrics that can be resampled: all but METEOR."""
    return [metric for metric in scores.metrics.values() if metric.terms.size]


def score_results(
    results: str | Path,
    references: str | Path,
    scorer: Scorer | None = None,
    format: str = "coco",
    split: str | None = None,
) -> CaptionScores:
    """Score captions in COCO's result format against references.

    references: as the reader of `format` takes its annotations, of the split `split`.
    scorer: by default scores and diversity.

    Scores the images of the results only, as the COCO evaluation does. Raises `UserError` for
    ill-formed files, for an image without references, by name, and as `Scorer` does.
    """
    scorer = scorer or Scorer()
    captions = read_results(results)
    found = read_examples(format, references, None, split, check_files=False)
    known = {example.name: example for example in found}
    for name in captions:
        if name not in known:
            place = f"{references}" if split is None else f"the split {split!r} of {references}"
            raise UserError(f"{results}: image {name} has no references in {place}")
    scored = [known[name] for name in captions]
    texts = CaptionTexts.of(
        list(captions.values()),
        [image.captions for image in scored],
        [image.image_id for image in scored],
        len(found) - len(scored),
    )
    return scorer.score(texts, str(results))


def score_model(
    captioner: Captioner,
    examples: Sequence[Example],
    search: SearchOptions | None = None,
    batch_size: int = 50,
    results: str | Path | None = None,
    left_out: dict[str, str] | None = None,
    scorer: Scorer | None = None,
    name: str = "the model",
    exact: bool = False,
) -> CaptionScores:
    """Caption photos by free-running search and score the captions.

    search, batch_size, left_out: as for `caption_examples`.
    results: a file for the captions, in COCO's result format; written before they are scored, and
        with the captions so far if an error ends the work early.
    scorer: by default scores and diversity.
    name: of the model, in a comparison.
    exact: report the share of captions that equal one of the photo's.
    Raises `UserError` as `caption_examples` and `Scorer` do, and if `results` cannot be written.
    """
    scorer = scorer or Scorer()
    captions: dict[int, str] = {}
    right = 0
    try:
        for row, caption in caption_examples(captioner, examples, search, batch_size, left_out):
            captions[row] = caption.text
            right += list(caption.words) in examples[row].words
    finally:  # An unreadable photo or an interruption loses no caption.
        if results is not None and captions:
            write_results(results, {examples[row].image_id: captions[row] for row in captions})
    scored = [examples[row] for row in captions]
    texts = CaptionTexts.of(
        list(captions.values()),
        [example.captions for example in scored],
        [example.image_id for example in scored],
    )
    return replace(scorer.score(texts, name), exact=right / len(captions) if exact else None)


def read_results(path: str | os.PathLike[str]) -> dict[str, str]:
    """Read one caption an image, by the image's name as text; ignores other fields of a record.

    Raises `UserError`, naming the file and the record (from 0), for a file that is not a JSON list
    of objects, a missing field, a field of a wrong type, a repeated image, and no captions.
    """
    records = read_json(path, "results file")
    if not isinstance(records, list):
        raise UserError(f"results file {path} is not a list of records")
    captions: dict[str, str] = {}
    for index, record in enumerate(records):
        where = f"results file {path}, record {index}"
        if not isinstance(record, dict):
            raise UserError(f"{where} is not an object")
        for field in ("image_id", "caption"):
            if field not in record:
                raise UserError(f"{where} has no {field}")
        image, caption = record["image_id"], record["caption"]
        if type(image) not in (int, str):
            raise UserError(f"{where}: image_id {image!r} is neither a whole number nor a string")
        if not isinstance(caption, str):
            raise UserError(f"{where}: the caption of image {image!r} is not a string")
        if str(image) in captions:
            raise UserError(f"{where}: image {image!r} already has a caption")
        captions[str(image)] = caption
    if not captions:
        raise UserError(f"results file {path} has no captions")
    return captions


def write_results(path: str | os.PathLike[str], captions: Mapping[ImageId, str]) -> None:
    """Write one caption an image, in the mapping's order, atomically.

    Raises `UserError` if the file cannot be written.
    """
    write_json(
        path, [{"image_id": image, "caption": caption} for image, caption in captions.items()]
    )
