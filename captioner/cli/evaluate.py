"""The commands `evaluate`, `score` and `maps`: scores of captions and maps."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from captioner.cli import shared_options as shared
from captioner.cli.program import report
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.evaluation import CONFIDENCE, DEFAULT_METRICS, METRICS, Scores
from captioner.model_folders import pinned

if TYPE_CHECKING:
    from captioner.data.example import Example, Problems
    from captioner.data.instances import Grounding
    from captioner.evaluation.maps import MapScores
    from captioner.evaluation.score import CaptionScores


def add_commands(commands: shared.Commands) -> None:
    """Add the three commands to the command line."""
    usage = "evaluate MODEL --annotations FILE [options]"
    parser, add = shared.add_parser(commands, run, usage, "score a model's captions on data")
    _add_photos(add)
    shared.add_search(parser, SearchOptions, explained_in="caption")
    _add_scores(parser)("--save-results", "FILE", "write the captions, as COCO does")
    shared.add_machine(parser, "photos at a time", 50)

    usage, summary = "score RESULTS REFERENCES [options]", "score captions in a file"
    parser, add = shared.add_parser(commands, run_score, usage, summary)
    add("results", "RESULTS", "captions, in COCO's result format or of `captioner caption --json`")
    add("references", "REFERENCES", "a table, a folder of photos with texts, or a file in --format")
    known = ", ".join(shared.FILE_FORMATS)
    add("--format", "FORMAT", f"{known} (default: by their fields)", choices=shared.FILE_FORMATS)
    add("--split", "SPLIT", "as the format names it (default: all)")
    add("--on-problem", "ACTION", "refuse or skip unusable captions", **shared.ON_PROBLEM)
    add = _add_scores(parser)
    add("--document-frequency", "FILE", "where CIDEr-D counts words (default: the references)")
    add = shared.add_group(parser, "comparison")
    add("--against", "FILE", "compare with captions of another system")
    add("--training-captions", "FILE", "count copies of training captions", dest="training")
    add = shared.add_group(parser, "hallucination")
    add("--instances", "FILE", "COCO's instances: the things in the photos", nargs="+", default=())
    add("--synonyms", "FILE", "words for these (default: the packaged list)")

    usage = "maps MODEL (--annotations FILE | --images FOLDER) [options]"
    parser, add = shared.add_parser(commands, run_maps, usage, "score a model's attention maps")
    _add_photos(add)
    add("--instances", "FILE", "COCO's boxes and segments", nargs="+", default=())
    add("--synonyms", "FILE", "words for these (default: the packaged list)")
    add("--erase", "", "also test whether words depend on what their maps show")
    shared.add_search(parser, SearchOptions, explained_in="caption")
    add = shared.add_group(parser, "output")
    shared.add_outputs(add, csv="write the scores of every word")
    shared.add_machine(parser, "photos at a time", 50)


def _add_photos(add: shared.Add) -> None:
    add("model", "MODEL", "a model folder, or a packaged model")
    shared.add_data_set(add, shared.DATA_FORMATS, "what cannot be read")
    add("--split", "SPLIT", "as the format names it")
    add("--count", "N", "the first N photos (shapes: 500 by default)")


def _add_scores(parser: argparse.ArgumentParser) -> shared.Add:
    add = shared.add_group(parser, "scores")
    known = ", ".join(DEFAULT_METRICS)
    about = f"{known} (default: these), METEOR, SPICE (need captioner[java])"
    add("--metrics", "METRIC", about, nargs="+", choices=METRICS, default=DEFAULT_METRICS)
    about = f"bootstrap confidence intervals (default: {CONFIDENCE})"
    add("--confidence", "SHARE", about, nargs="?", type=float, const=CONFIDENCE)
    add("--words", "", "the share of content words that are true, by kind: people, actions, ...")
    shared.add_outputs(add, csv="write the scores of every image")
    return add


def run(arguments: argparse.Namespace) -> int:
    """Captions the photos of a data set and scores the captions: BLEU-1 to BLEU-4,
    ROUGE-L, CIDEr-D, word-precision, and how varied they are.

      captioner evaluate default --format flickr8k --split val \\
          --annotations Flickr8k.token.txt --images photos/ --save-results out.json
      captioner evaluate runs/shapes/model --format shapes   (generated pictures)

    The exit code is 2 if a photo or record was skipped.
    """
    _check_options(arguments, ("--save-results", arguments.save_results))
    shared.check_data_set(arguments)

    from captioner.evaluation.score import Scorer, score_model

    scorer = Scorer(arguments.metrics, confidence=arguments.confidence, words=arguments.words)
    results, exact = arguments.save_results, arguments.format == "shapes"

    def score(model: Any, photos: list[Example], _: object, **options: Any) -> CaptionScores:
        return score_model(model, photos, results=results, scorer=scorer, exact=exact, **options)

    return _score_photos(arguments, score)


def run_score(arguments: argparse.Namespace) -> int:
    """Scores saved captions: BLEU-1 to BLEU-4, ROUGE-L, CIDEr-D, word-precision, and
    how varied they are.

      captioner score out.json captions.json --confidence --csv scores.csv
      captioner score out.json captions.json --against other.json

    CIDEr-D of one photo needs --document-frequency, a file of more captions.
    """
    _check_options(arguments)

    from captioner.evaluation.score import Scorer, score_results

    asked = [field.name for field in fields(Scorer) if field.init]
    scorer = Scorer(**{name: getattr(arguments, name) for name in asked})
    scores = score_results(arguments.results, arguments.references, scorer, arguments.split)
    return shared.write_scores(scores, arguments.json, arguments.csv, scorer.problems)


def run_maps(arguments: argparse.Namespace) -> int:
    """Scores a model's attention maps: width, movement and, given boxes or segments,
    whether they lie on what the words name; with --erase, whether a word's probability falls
    without what its map shows. The exit code is as of `evaluate`.

      captioner maps default --images photos/
      captioner maps runs/shapes/model --format shapes --csv words.csv
    """
    _check_options(arguments)
    if arguments.format or arguments.annotations or not arguments.images:
        shared.check_data_set(arguments)
    elif arguments.instances or arguments.split:  # They name photos as there.
        raise UserError("--instances and --split need a data set: give --annotations")

    from captioner.data.instances import CocoInstances, read_synonyms
    from captioner.evaluation.maps import score_maps

    annotated: Grounding | None = None
    if arguments.instances:
        synonyms = read_synonyms(arguments.synonyms)
        annotated = CocoInstances(arguments.instances).grounding(synonyms)

    def score(
        model: Any, photos: list[Example], generated: Grounding | None, **options: Any
    ) -> MapScores:
        grounding = generated or annotated
        return score_maps(model, photos, grounding=grounding, erase=arguments.erase, **options)

    return _score_photos(arguments, score)


def _check_options(arguments: argparse.Namespace, *more: tuple[str, str | None]) -> None:
    if getattr(arguments, "synonyms", None) and not arguments.instances:
        raise UserError("--synonyms needs the things that they are words for: give --instances")
    files = [("--json", arguments.json), ("--csv", arguments.csv), *more]
    shared.check_outputs(files, arguments.overwrite)


def _score_photos(arguments: argparse.Namespace, score: Callable[..., Scores]) -> int:
    """Score a model on photos, report what was left out, write the files; 2 if something was.

    score: takes the model, photos, where things are on generated ones, and how to caption.
    """
    from captioner import load
    from captioner.data.example import Problems

    model = load(pinned(arguments.model), **shared.machine(arguments, arguments.sample))
    problems = Problems(arguments.on_problem)
    photos, generated = _read_photos(arguments, model.preprocessing.size, problems)
    for sentence in problems.sentences:
        report(sentence)
    options: dict[str, Any] = {"search": shared.search_options(arguments, model.search)}
    left_out = dict[str, str]() if arguments.on_problem == "skip" else None
    options |= {"batch_size": arguments.batch_size, "left_out": left_out}
    scores = score(model, photos, generated, **options)
    shared.report_left_out(left_out, len(photos))
    shared.write_scores(scores, arguments.json, arguments.csv)
    return 2 if left_out or len(problems) else 0


def _read_photos(
    arguments: argparse.Namespace, size: int, problems: Problems
) -> tuple[list[Example], Grounding | None]:
    """The first `--count` photos, and where the things are that words name, if they are generated.

    size: of generated pictures, in pixels; no model was trained on these.
    """
    from captioner.data import shapes
    from captioner.data.example import Example
    from captioner.data.readers import read_splits
    from captioner.vision.images import photo_files

    if arguments.count is not None and arguments.count < 1:
        raise UserError(f"--count {arguments.count} is not at least 1")
    if arguments.format == "shapes":
        config = shapes.ShapesConfig(image_size=size)
        pictures = shapes.generate(arguments.count or 500, shapes.UNSEEN_SEED, config)
        photos = shapes.shapes_examples(pictures)
        names = [photo.image_id for photo in photos]
        return photos, shapes.shapes_grounding(dict(zip(names, pictures, strict=True)))
    if arguments.annotations is not None:
        annotations, images = arguments.annotations, arguments.images
        (photos,) = read_splits(arguments.format, annotations, images, [arguments.split], problems)
    else:
        found = photo_files([arguments.images or "."], note=problems.notes.append)
        photos = [Example(str(file), file) for file in found]
    return photos[: arguments.count], None
