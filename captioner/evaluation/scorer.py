"""Scores the captions of a results file, or those that a model writes, as a `Scorer` says."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from captioner.caption.photos import caption_photos
from captioner.data.example import Example, ImageId, OnProblem, Problems
from captioner.data.instances import read_instances
from captioner.data.parallel import read_lines
from captioner.data.readers import format_of, read_examples
from captioner.data.synonyms import read_synonyms
from captioner.errors import UserError
from captioner.evaluation import CONFIDENCE, DEFAULT_METRICS
from captioner.evaluation.cider import DocumentFrequency
from captioner.evaluation.hallucination import chair
from captioner.evaluation.score import (
    CaptionScores,
    Comparisons,
    check_metrics,
    evaluate_captions,
)
from captioner.evaluation.significance import compare, confidence_intervals
from captioner.evaluation.wording import fluency, text_diversity
from captioner.files import read_json, write_json
from captioner.outcomes import Failed
from captioner.progress import progress_bar
from captioner.text.ngrams import PeoplesNgrams
from captioner.text.tokenizer import tokenize, tokenize_unsplit

if TYPE_CHECKING:  # They bring torch, which scoring a file does not need.
    from captioner.caption.caption import Caption
    from captioner.caption.captioner import Captioner
    from captioner.decoding.options import SearchOptions


@dataclass
class Scorer:
    """Scores captions as its fields say.

    metrics: some of `METRICS`.
    format: of the files of captions; None for each file's own, by its fields.
    document_frequency: a file of captions in `format`, all splits, over which CIDEr-D counts how
        rare n-grams are; None counts over the references.
    confidence: the share of the scores' confidence intervals; None for no intervals.
    against: a results file of another system, to compare with.
    training: the captions of training, a file in `format`; its split `train`, if it has splits.
    instances: files of COCO instances, to find hallucinated things; none skips that.
    synonyms: the word list for them; None for the packaged one.
    fluency: a file of people's captions that the model has not learned from, one a line.
    on_problem: refuse or skip bad records of the files of captions; `problems` has them.
    """

    metrics: Sequence[str] = DEFAULT_METRICS
    document_frequency: str | Path | None = None
    confidence: float | None = None
    against: str | Path | None = None
    training: str | Path | None = None
    format: str | None = None
    instances: Sequence[str | Path] = ()
    synonyms: str | Path | None = None
    fluency: str | Path | None = None
    on_problem: OnProblem = "refuse"
    problems: list[Problems] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        check_metrics(self.metrics)
        if set(self.metrics) == {"METEOR"} and (self.confidence is not None or self.against):
            raise UserError("METEOR has no interval and no comparison; choose another metric too")
        if self.confidence is not None and not 0 < self.confidence < 1:
            raise UserError(f"confidence {self.confidence} is not between 0 and 1")
        self.people = None
        if self.fluency is not None:
            people = [tokenize(line) for line in read_lines(self.fluency) if line.strip()]
            if not people:
                raise UserError(f"{self.fluency} has no captions; give people's, one a line")
            self.people = PeoplesNgrams(people)

    def score(
        self,
        captions: Mapping[ImageId, str],
        references: Sequence[Sequence[str]],
        name: str,
        images: Sequence[Example] = (),
    ) -> CaptionScores:
        """Score captions, by image, against the references of each.

        name: of their system. images: those of `against`, where it names files.
        """
        frequency, training, others = None, None, None
        if self.document_frequency is not None:
            of_images = self._tokenised(self.document_frequency, None, tokenize)
            frequency = DocumentFrequency.from_references(list(of_images))
        if self.training is not None:
            file_format = self.format or format_of(Path(self.training)) or "coco"
            split = None if file_format == "coco" else "train"  # A file of COCO is of one split.
            training = chain.from_iterable(self._tokenised(self.training, split, tokenize_unsplit))
        if self.against is not None:
            others = self._others(captions, name, images)

        def scored(texts: Sequence[str]) -> CaptionScores:
            return evaluate_captions(texts, references, frequency, self.metrics, list(captions))

        scores = scored(list(captions.values()))
        words = list(scores.corpus.captions)
        more: dict[str, Any] = {"diversity": text_diversity(words, training)}
        if self.people is not None:
            more["fluency"] = fluency(words, list(scores.corpus.references), self.people)
        if self.instances:
            instances, synonyms = read_instances(self.instances), read_synonyms(self.synonyms)
            known = instances.known_categories(synonyms)
            categories = [instances.categories(image) for image in captions]
            truth = list(scores.corpus.references)
            more["hallucination"] = chair(words, truth, categories, synonyms, known)
        confidence = CONFIDENCE if self.confidence is None else self.confidence
        metrics = list(scores.metrics.values())
        if self.confidence is not None:
            more["intervals"] = confidence_intervals(metrics, confidence)
        if others is not None:
            compared = compare(metrics, list(scored(others).metrics.values()), confidence)
            more["comparison"] = Comparisons(name, str(self.against), compared)
        if self.confidence is not None or others is not None:
            more["confidence"] = confidence
        return replace(scores, **more)

    def read(self, file: str | Path, split: str | None) -> list[Example]:
        """The images and captions of a file in `format`; no photo needs to exist."""
        self.problems.append(Problems(self.on_problem))
        return read_examples(self.format, file, None, split, self.problems[-1], check_files=False)

    def _tokenised(
        self, file: str | Path, split: str | None, split_words: Callable[[str], list[str]]
    ) -> Iterator[list[list[str]]]:
        """The words of each image's captions in a file."""
        for image in self.read(file, split):
            yield list(map(split_words, image.captions))

    def _others(
        self, captions: Mapping[ImageId, str], name: str, images: Sequence[Example]
    ) -> list[str]:
        """The captions to compare with, in the same order of images."""
        others = read_results(str(self.against), images)
        if differing := others.keys() ^ set(map(str, captions)):
            raise UserError(
                f"only the same images can be compared: {name} and {self.against} differ in "
                f"{len(differing):,}, image {min(differing)} for one"
            )
        return [others[str(image)] for image in captions]


def score_results(
    results: str | Path,
    references: str | Path,
    scorer: Scorer | None = None,
    split: str | None = None,
) -> CaptionScores:
    """Score captions in COCO's result format, or of `captioner caption`, against references.

    Scores the images of the results only, as the COCO evaluation does. An image that is not named
    as in the references has those of its file name, if it is the only one.

    references: as the reader of the scorer's `format` takes its annotations, of the split `split`.
    """
    scorer = scorer or Scorer()
    found = scorer.read(references, split)
    known = {example.name: example for example in found}
    captions = read_results(results, found)
    place = f"{references}" if split is None else f"the split {split!r} of {references}"
    problems = Problems(scorer.on_problem, f"results file {results}")
    for name in captions:
        if name not in known:
            sentence = f"image {name} has no references in {place}"
            problems.add("image without references", sentence)
    problems.settle()
    scorer.problems.append(problems)
    own = {known[name].image_id: caption for name, caption in captions.items() if name in known}
    truth = [known[name].captions for name in captions if name in known]
    scores = scorer.score(own, truth, str(results), found)
    return replace(scores, references_without_caption=len(found) - len(own))


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
    results: a file for the captions, written before they are scored, and with the captions so far
        if an error ends the work early.
    name: of the model, in a comparison.
    exact: report the share of captions that equal one of the photo's.
    """
    captions: dict[ImageId, str] = {}
    references = []
    right = 0
    try:
        for row, caption in caption_examples(captioner, examples, search, batch_size, left_out):
            captions[examples[row].image_id] = caption.text
            references.append(examples[row].captions)
            right += list(caption.words) in examples[row].words
    finally:  # An unreadable photo or an interruption loses no caption.
        if results is not None and captions:
            write_results(results, captions)
    scores = (scorer or Scorer()).score(captions, references, name)
    return replace(scores, exact=right / len(captions) if exact else None)


def caption_examples(
    captioner: Captioner,
    examples: Sequence[Example],
    search: SearchOptions | None = None,
    batch_size: int = 50,
    left_out: dict[str, str] | None = None,
) -> Iterator[tuple[int, Caption]]:
    """Yield each photo's row and its best caption, in order.

    The captions' photos have few pixels, since a batch holds all of them.

    search: by default the captioner's own.
    left_out: receives unreadable photos, by name, each with the reason; None refuses them.
    """
    options = (search or captioner.search).replace(n_best=1)
    photos = [(each.name, partial(captioner.preprocessing.load, each.path)) for each in examples]
    items = caption_photos(
        captioner,
        photos,
        options,
        batch_size,
        drawn_side=1,
        workers=captioner.workers_for(len(photos), batch_size),
        readers=captioner.readers(),
    )
    captioned = 0
    with progress_bar("captioning", len(examples), "images") as progress:
        for row, item in enumerate(items):
            if not isinstance(item, Failed):
                captioned += 1
                yield row, item.caption
            elif left_out is None:
                raise UserError(item.reason)
            else:
                left_out[item.name] = item.reason
            progress.update()
    if not captioned:
        raise UserError(f"not one of {len(examples):,} photos could be read")


def read_results(path: str | os.PathLike[str], images: Sequence[Example] = ()) -> dict[str, str]:
    """Read one caption an image, by the image's name as text; other fields are ignored.

    Of `captioner caption --json`, the names are paths, and records of failed photos are left out.

    images: a caption of another name is of the only one with a file so named.
    """
    names = {image.name for image in images}
    files = Counter(Path(str(image.path)).name for image in images)
    of_file = {Path(str(image.path)).name: image.name for image in images}
    records = read_json(path, "results file")
    if not isinstance(records, list) or not records:
        raise UserError(f"results file {path} is not a list of captions")
    captions: dict[str, str] = {}
    for index, record in enumerate(records):
        where = f"results file {path}, record {index}"
        if isinstance(record, dict) and "image" in record:
            if "error" in record and "caption" not in record:
                continue
            record = {"image_id": record["image"], **record}
        if not isinstance(record, dict) or not record.keys() >= {"image_id", "caption"}:
            raise UserError(f"{where} does not have image_id and caption")
        image, caption = record["image_id"], record["caption"]
        if type(image) not in (int, str):
            raise UserError(f"{where}: image_id {image!r} is neither a whole number nor a string")
        if not isinstance(caption, str):
            raise UserError(f"{where}: the caption of image {image!r} is not a string")
        name, file = str(image), Path(str(image)).name
        if name not in names and files[file] == 1:
            name = of_file[file]
        if name in captions:
            raise UserError(f"{where}: image {image!r} already has a caption")
        captions[name] = caption
    return captions


def write_results(path: str | os.PathLike[str], captions: Mapping[ImageId, str]) -> None:
    """Write one caption an image, in the mapping's order."""
    write_json(
        path, [{"image_id": image, "caption": caption} for image, caption in captions.items()]
    )
