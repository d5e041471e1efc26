"""Scores captions: given as strings, of a results file, or those that a model writes.

A results file has a caption an image in COCO's format; `captioner caption` writes such files too.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from captioner.caption.captioner import caption_photos
from captioner.data.example import Example, ImageId, OnProblem, Problems
from captioner.data.instances import CocoInstances, read_synonyms
from captioner.data.readers import format_of, read_splits
from captioner.data.table import is_failed, text_records
from captioner.errors import UserError
from captioner.evaluation import (
    CONFIDENCE,
    DEFAULT_METRICS,
    METRICS,
    Figures,
    Scores,
    coco_metrics,
    wording,
)
from captioner.evaluation.corpus import (
    FEW_IMAGES,
    RESAMPLES,
    Corpus,
    Metric,
    compare,
    confidence_intervals,
    scores_by_name,
)
from captioner.files import composed, write_json
from captioner.outcomes import Failed
from captioner.progress import counted_by, progress_bar
from captioner.tables import Row, figures_table, text_table
from captioner.text.tokenizer import tokenize
from captioner.vision.parquet import PATH_COLUMNS

if TYPE_CHECKING:  # They bring torch, which scoring a file does not need.
    from captioner.caption.caption import Caption
    from captioner.caption.captioner import Captioner
    from captioner.decoding.options import SearchOptions


File = str | Path
_IN_TABLES = {wording.NO_WORD_TRUE: "captions with no true word"}  # Names that need more words.


@dataclass(frozen=True)
class CaptionScores(Scores):
    """The scores of I captions against their references.

    details: by name, in JSON beside the scores. Always the number of `images` and of further ones
        with references, `references_without_caption`; of BLEU, lengths in words; what a `Scorer`
        was asked for; `exact match`, the share of captions that equal a reference.
    """

    image_ids: Sequence[ImageId]
    captions: Sequence[str]
    corpus: Corpus  # The captions and their references.
    metrics: Sequence[Metric]  # In the order of `METRICS`.
    details: Figures

    def by_name(self) -> dict[str, float]:
        """The scores alone; all are fractions of one but `CIDEr-D`, which runs from 0 to 10."""
        return scores_by_name(self.metrics)

    def rows(self) -> list[Figures]:
        """A row an image, in order: `image_id`, `caption`, and the scores by name; None for NaN."""
        columns: Figures = {"image_id": self.image_ids, "caption": self.captions}
        for metric in self.metrics:
            for name, scores in zip(metric.names, np.atleast_2d(metric.per_image.T), strict=False):
                columns[name] = [None if score != score else score for score in scores.tolist()]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_dict(self) -> Figures:
        """The scores of `by_name` with `details`, for JSON."""
        return self.by_name() | self.details

    def table(self) -> str:
        """All scores as lines of text."""

        def renamed(figures: Figures) -> Figures:
            return {_IN_TABLES.get(name, name): value for name, value in figures.items()}

        figures = renamed(self.to_dict())
        names = ("too_few_images", "confidence", "intervals", "comparison", "words")
        few, confidence, intervals, comparison, by_kind = (figures.pop(n, None) for n in names)
        sections = [figures.pop(n) for n in ("diversity", "hallucination") if n in figures]
        if intervals:
            figures["in brackets"] = confidence
            about = f"confidence, {RESAMPLES:,} bootstrap resamples of the images"
            intervals = {**renamed(intervals), "in brackets": about}
        parts = [figures_table(figures, intervals), *map(figures_table, sections)]
        if by_kind:
            header: Row = ("content words", *by_kind["all"])
            kinds = [(kind, *shares.values()) for kind, shares in by_kind.items()]
            parts.append(text_table([header, *kinds]))
        if comparison:
            first, second, scores = comparison.values()
            header = ("", "first", "second", "difference", f"{100 * confidence:g} %", "p bootstrap")
            rows = [(name, *row.values()) for name, row in renamed(scores).items()]
            parts.append(f"first: {first}\nsecond: {second}\n{text_table([header, *rows])}")
        if few:
            note = f"NOTE: {figures['images']:,} images are too few for intervals and p values"
            parts.append(f"{note} to be evidence: there should be {FEW_IMAGES} at least")
        return "\n\n".join(parts)


def evaluate_captions(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    document_frequency: coco_metrics.DocumentFrequency | None = None,
    metrics: Sequence[str] = DEFAULT_METRICS,
    images: Sequence[ImageId] | None = None,
) -> CaptionScores:
    """Score one caption an image, which may be empty, against the image's references.

    document_frequency: of CIDEr-D; by default counted over the references of these images.
    metrics: some of `METRICS`. images: names, by default numbers from 0.
    """
    check_metrics(metrics)
    if not len(hypotheses) == len(references) > 0:
        counts = f"{len(hypotheses)} captions and references for {len(references)} images"
        raise UserError(f"there are {counts}; give one image or more, and one caption an image")
    names = images or range(len(hypotheses))
    for name, text, of_image in zip(names, hypotheses, references, strict=True):
        is_list = bool(of_image) and not isinstance(of_image, str)
        if not is_list or not all(isinstance(string, str) for string in (text, *of_image)):
            raise UserError(f"image {name!r} needs a caption and a list of references, of strings")
    truth = (map(tokenize, of_image) for of_image in references)
    corpus = Corpus(map(tokenize, hypotheses), truth)
    scorers: dict[str, Callable[[Corpus], Metric]] = {
        "BLEU": coco_metrics.bleu,
        "ROUGE-L": coco_metrics.rouge_l,
        "CIDEr-D": partial(coco_metrics.cider_d, document_frequency=document_frequency),
        "word-precision": wording.word_precision,
        "METEOR": coco_metrics.meteor,
        "SPICE": coco_metrics.spice,
    }
    scored = [score(corpus) for name, score in scorers.items() if name in metrics]
    details: Figures = dict(chain.from_iterable(one.details.items() for one in scored))
    details |= {"images": len(names), "references_without_caption": 0}
    if document_frequency is not None and "CIDEr-D" in metrics:
        details["document_frequency"] = {"images": document_frequency.images}
    return CaptionScores(names, hypotheses, corpus, scored, details)


def check_metrics(metrics: Sequence[str]) -> None:
    """Raise `UserError` for an unknown metric and one that cannot be run here."""
    for metric in metrics:
        if metric not in METRICS:
            raise UserError(f"metric {metric!r} is not one of {', '.join(METRICS)}")
        if metric in ("METEOR", "SPICE"):
            coco_metrics.check_java_metric(metric)


@dataclass
class Scorer:
    """Scores captions as its fields say."""

    metrics: Sequence[str] = DEFAULT_METRICS
    document_frequency: File | None = None  # Captions in which CIDEr-D counts; None: references.
    confidence: float | None = None  # Share that intervals hold; None for no intervals.
    against: File | None = None  # A results file of another system, to compare with.
    training: File | None = None  # Its captions: of its split `train`, else of all.
    format: str | None = None  # Format of all files of captions; None: found for each file.
    instances: Sequence[File] = ()  # COCO's instances, to find hallucinated things.
    synonyms: File | None = None  # The word list for them; None for the packaged one.
    words: bool = False  # Split the content words by kind, and say which are true.
    on_problem: OnProblem = "refuse"  # For bad records of the files of captions.
    problems: list[Problems] = field(default_factory=list, init=False)  # One for each file read.

    def __post_init__(self) -> None:  # Fails before a model writes captions.
        check_metrics(self.metrics)
        if self.confidence is not None and not 0 < self.confidence < 1:
            raise UserError(f"confidence {self.confidence} is not between 0 and 1")

    def score(
        self,
        captions: Mapping[ImageId, str],
        references: Sequence[Sequence[str]],
        name: str,
        images: Sequence[Example] = (),
    ) -> CaptionScores:
        """Score captions of the system `name`. images: those of `against`, where it names files."""
        frequency = training = None
        if self.document_frequency is not None:
            of_images = [example.words for example in self.read(self.document_frequency, None)]
            frequency = coco_metrics.DocumentFrequency.from_references(of_images)
        if self.training is not None:
            file_format = self.format or format_of(Path(self.training)) or "coco"
            split = None if file_format == "coco" else "train"  # A file of COCO is of one split.
            seen = self.read(self.training, split, draws_splits=False)
            training = chain.from_iterable(example.words for example in seen)
        options: Figures = {"document_frequency": frequency, "metrics": self.metrics}
        scores = evaluate_captions([*captions.values()], references, images=[*captions], **options)
        details = scores.details
        words, truth = scores.corpus.captions, scores.corpus.references
        details["diversity"] = wording.text_diversity(words, training)
        if self.words:
            details["words"] = wording.words_by_kind(words, truth)
        if self.instances:
            instances, synonyms = CocoInstances(self.instances), read_synonyms(self.synonyms)
            categories = [instances.categories(image) for image in captions]
            known = instances.known_categories(synonyms)
            details["hallucination"] = wording.chair(words, truth, categories, synonyms, known)
        confidence = self.confidence or CONFIDENCE
        if self.confidence is not None:
            details["intervals"] = confidence_intervals(scores.metrics, confidence)
        if self.against is not None:
            others = read_results(self.against, images)
            if differing := others.keys() ^ set(map(str, captions)):
                fault = f"{name} and {self.against} differ in {len(differing):,}"
                raise UserError(f"{fault}, image {min(differing)} for one, and cannot be compared")
            texts = [others[str(image)] for image in captions]
            theirs = evaluate_captions(texts, references, **options)
            compared = compare(scores.metrics, theirs.metrics, confidence)
            details["comparison"] = {"first": name, "second": str(self.against), "scores": compared}
        if self.confidence is not None or self.against is not None:
            details |= {"confidence": confidence, "too_few_images": len(captions) < FEW_IMAGES}
        return scores

    def read(self, file: File, split: str | None, draws_splits: bool = True) -> list[Example]:
        """The images and captions of a file in `format`; no photo needs to exist."""
        self.problems.append(Problems(self.on_problem, draws_splits=draws_splits))
        problems = self.problems[-1]
        return read_splits(self.format, file, None, [split], problems, check_files=False)[0]


def score_results(
    results: File, references: File, scorer: Scorer | None = None, split: str | None = None
) -> CaptionScores:
    """Score captions in COCO's result format, or of `captioner caption`, against references.

    Scores the images of the results only, as the COCO evaluation does; see `read_results`.
    references: as the reader of the scorer's `format` takes its annotations, of the split `split`.
    """
    scorer = scorer or Scorer()
    examples = scorer.read(references, split)
    known = {example.name: example for example in examples}
    captions = read_results(results, examples)
    place = references if split is None else f"the split {split!r} of {references}"
    problems = Problems(scorer.on_problem, f"results file {results}")
    for name in captions:
        if name not in known:
            problems.add(f"image without references in {place}", f"image {name}")
    problems.settle()
    scorer.problems.append(problems)
    texts = {known[name].image_id: caption for name, caption in captions.items() if name in known}
    truth = [known[name].captions for name in captions if name in known]
    scores = scorer.score(texts, truth, str(results), examples)
    scores.details["references_without_caption"] = len(examples) - len(texts)
    return scores


def score_model(
    captioner: Captioner,
    examples: Sequence[Example],
    *,
    results: File | None = None,
    scorer: Scorer | None = None,
    exact: bool = False,
    **options: Any,
) -> CaptionScores:
    """Caption photos, without teacher forcing, and score the captions.

    results: a file for the captions, also those before an error.
    exact: report the share of captions that equal one of the photo's.
    options: of `caption_examples`.
    """
    captions: dict[ImageId, str] = {}
    references, right = [], 0
    try:
        for example, caption in caption_examples(captioner, examples, **options):
            captions[example.image_id] = caption.text
            references.append(example.captions)
            right += list(caption.words) in example.words
    finally:  # An unreadable photo or an interruption loses no caption.
        if results is not None and captions:
            write_results(results, captions)
    scores = (scorer or Scorer()).score(captions, references, "the model")
    if exact:
        scores.details["exact match"] = right / len(captions)
    return scores


def caption_examples(
    captioner: Captioner,
    examples: Sequence[Example],
    search: SearchOptions | None = None,
    batch_size: int = 50,
    left_out: dict[str, str] | None = None,
    shown_as: str = "captioning",
) -> Iterator[tuple[Example, Caption]]:
    """Yield photos and their best captions, in order. search: by default the captioner's own.

    left_out: receives unreadable photos, by name, each with the reason; None refuses them.
    """
    options = (search or captioner.search).replace(n_best=1)
    photos = [(example.name, example.source) for example in examples]
    items = zip(examples, caption_photos(captioner, photos, options, batch_size), strict=True)
    captioned = 0
    with progress_bar(shown_as, len(examples), "images") as progress:
        for example, item in counted_by(progress, items):
            if not isinstance(item, Failed):
                captioned += 1
                yield example, item
            elif left_out is None:
                raise UserError(f"{item.reason} (--on-problem skip leaves it out)")
            else:
                left_out[item.name] = item.reason
    if not captioned:
        raise UserError(f"not one of {len(examples):,} photos could be read")


def read_results(path: File, images: Sequence[Example] = ()) -> dict[str, str]:
    """Read one caption an image, by the image's name as text; other fields are ignored.

    See `text_records`. In tables of `captioner caption`, the names are paths; records of failed
    photos and captions but the best are left out.

    images: a caption of another name is of the only one whose name has the same letters, composed
        or decomposed, or else of the only one with a file so named.
    """
    names = {image.name for image in images}
    alike: defaultdict[str, set[str]] = defaultdict(set)  # Names by their letters, and by files.
    for image in images:
        alike[composed(image.name)].add(image.name)
        alike[composed(os.path.basename(f"{image.source}"))].add(image.name)
    source = f"results file {path}"
    problems = Problems(source=source)
    captions = dict[str, str]()
    for place, record in text_records(Path(path), problems, "results file"):
        where = f"{source}, {place}"
        fields = record if isinstance(record, dict) else {}
        if str(fields.get("rank") or 1) != "1" or is_failed(fields):
            continue
        caption = fields.get("caption")
        image_id = next((fields[n] for n in ("image_id", *PATH_COLUMNS) if n in fields), None)
        if type(image_id) not in (int, str) or not isinstance(caption, str):
            raise UserError(f"{where} lacks image_id, a whole number or text, or caption, a text")
        name = str(image_id)
        matches = alike[composed(name)] or alike[composed(os.path.basename(name))]
        if name not in names and len(matches) == 1:
            name = min(matches)
        if name in captions:
            raise UserError(f"{where}: image {image_id!r} already has a caption")
        captions[name] = caption
    problems.settle()
    if not captions:
        raise UserError(f"{source} is not a list of captions")
    return captions


def write_results(path: File, captions: Mapping[ImageId, str]) -> None:
    """Write one caption an image, in the mapping's order."""
    write_json(path, [{"image_id": image, "caption": text} for image, text in captions.items()])
