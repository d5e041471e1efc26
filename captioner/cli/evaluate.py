"""`captioner evaluate`, `captioner score` and `captioner maps`: scores of captions and maps."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from captioner.cli import shared_options as shared
from captioner.cli.program import report
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.evaluation import CONFIDENCE, DEFAULT_METRICS, METRICS

if TYPE_CHECKING:
    from captioner.caption.captioner import Captioner
    from captioner.data.example import Example
    from captioner.data.shapes import ShapesExample

DESCRIPTION = """\
Captions the photos of a data set and scores the captions: BLEU-1 to BLEU-4,
ROUGE-L, CIDEr-D, word-precision, and how varied they are.

  captioner evaluate default --format flickr8k --split val \\
      --annotations Flickr8k.token.txt --images photos/ --save-results out.json
  captioner evaluate runs/shapes/model --format shapes   (generated pictures)

`captioner score` does more with saved captions: comparisons, hallucination.
The exit code is 2 if a photo or record was skipped.
"""

SCORE_DESCRIPTION = """\
Scores captions, in COCO's result format or as `captioner caption --json` writes
them, against references: BLEU-1 to BLEU-4,
ROUGE-L, CIDEr-D, word-precision, and how varied they are.

  captioner score out.json captions.json --confidence --csv scores.csv
  captioner score out.json captions.json --against other.json

CIDEr-D of one photo needs --document-frequency, a file of more captions.
"""

MAPS_DESCRIPTION = """\
Scores a model's attention maps: width, movement and, given boxes or segments,
whether they lie on what the words name.
If a photo or record was skipped, the exit code is 2.

  captioner maps default --images photos/
  captioner maps runs/shapes/model --format shapes --csv words.csv
"""


def add_commands(commands: shared.Commands) -> None:
    """Add the three commands to the command line."""
    summary, usage = "score a model's captions on data", "MODEL --annotations FILE [options]"
    parser = shared.add_parser(commands, "evaluate", run, summary, usage, DESCRIPTION)
    _add_photos(parser)
    shared.add_search(parser, SearchOptions, explained_in="caption")
    about = "write the captions, as COCO does"
    _add_scores(parser).add_argument("--save-results", metavar="FILE", help=about)
    shared.add_machine(parser, "photos at a time", 50, precision=True)

    summary, usage = "score captions in a file", "RESULTS REFERENCES [options]"
    parser = shared.add_parser(commands, "score", run_score, summary, usage, SCORE_DESCRIPTION)
    group = parser.add_argument_group("input")
    add = group.add_argument
    add(
        "results",
        metavar="RESULTS",
        help="captions, in COCO's result format, or those of `captioner caption --json`",
    )
    add(
        "references",
        metavar="REFERENCES",
        help="captions: a table, a folder of photos with texts, or a file in --format",
    )
    about = f"{', '.join(shared.FILES)} (default: by their fields)"
    add("--format", choices=shared.FILES, metavar="FORMAT", help=about)
    add("--split", help="as the format names it (default: all)")
    shared.add_on_problem(group, "captions that cannot be used")
    about = "captions over which CIDEr-D counts rarity (default: the references)"
    _add_scores(parser).add_argument("--document-frequency", metavar="FILE", help=about)
    add = parser.add_argument_group("comparison").add_argument
    add("--against", metavar="FILE", help="compare with captions of another system")
    about = "count captions seen in training (split train)"
    add("--training-captions", metavar="FILE", help=about)
    things = parser.add_argument_group("hallucination")
    _add_instances(things, "COCO's instances: the things in the photos")

    summary = "score a model's attention maps"
    usage = "MODEL (--annotations FILE | --images FOLDER) [options]"
    parser = shared.add_parser(commands, "maps", run_maps, summary, usage, MAPS_DESCRIPTION)
    _add_instances(_add_photos(parser), "COCO's boxes and segments")
    shared.add_search(parser, SearchOptions, explained_in="caption")
    out = parser.add_argument_group("output")
    shared.add_outputs(out, csv="write the scores of every word")
    shared.add_machine(parser, "photos at a time", 50, precision=True)


def _add_photos(parser: argparse.ArgumentParser) -> shared.Group:
    """Add the group of MODEL and a data set."""
    data = parser.add_argument_group("input")
    data.add_argument("model", metavar="MODEL", help="a model folder, or a packaged model")
    shared.add_data_set(data, shared.FORMATS, "what cannot be read")
    data.add_argument("--split", help="as the format names it")
    about = "the first N photos (shapes: 500 by default)"
    data.add_argument("--count", type=int, metavar="N", help=about)
    return data


def _add_instances(group: shared.Group, about: str) -> None:
    group.add_argument("--instances", nargs="+", default=(), metavar="FILE", help=about)
    about = "words for these (default: the packaged list)"
    group.add_argument("--synonyms", metavar="FILE", help=about)


def _add_scores(parser: argparse.ArgumentParser) -> shared.Group:
    """Add the choice of scores and the files they are written to."""
    group = parser.add_argument_group("scores")
    group.add_argument(
        "--metrics",
        nargs="+",
        choices=METRICS,
        default=DEFAULT_METRICS,
        metavar="METRIC",
        help=f"{', '.join(DEFAULT_METRICS)} (default: these), METEOR, SPICE (need captioner[java])",
    )
    group.add_argument(
        "--confidence",
        nargs="?",
        type=float,
        const=CONFIDENCE,
        metavar="SHARE",
        help=f"bootstrap confidence intervals (default: {CONFIDENCE})",
    )
    about = "people's captions, one a line: count the captions that are worded as they are"
    group.add_argument("--fluency", metavar="FILE", help=about)
    shared.add_outputs(group, csv="write the scores of every image")
    return group


def run(arguments: argparse.Namespace) -> int:
    """Caption, score, print the table, write the files; 2 if a photo or record was left out."""
    shared.check_outputs(arguments, "--json", "--csv", "--save-results")
    shared.check_data_set(arguments)

    from captioner import load
    from captioner.evaluation.score import Scorer, score_model
    from captioner.hub import pinned

    scorer = Scorer(
        metrics=arguments.metrics, confidence=arguments.confidence, fluency=arguments.fluency
    )
    name = pinned(arguments.model)
    model = load(name, arguments.device, arguments.precision)
    examples, _, is_incomplete = _read_photos(arguments, model)
    with _left_out(arguments, len(examples)) as left_out:
        scores = score_model(
            model,
            examples,
            shared.search_options(arguments, model.search),
            arguments.batch_size,
            arguments.save_results,
            left_out,
            scorer,
            name,
            exact=arguments.format == "shapes",
        )
    shared.write_scores(scores, arguments)
    return 2 if left_out or is_incomplete else 0


def run_score(arguments: argparse.Namespace) -> int:
    """Score, print the tables, write the files; 2 if a record was skipped."""
    shared.check_outputs(arguments, "--json", "--csv")

    from captioner.evaluation.score import Scorer, score_results

    scorer = Scorer(
        metrics=arguments.metrics,
        document_frequency=arguments.document_frequency,
        confidence=arguments.confidence,
        against=arguments.against,
        training=arguments.training_captions,
        format=arguments.format,
        instances=arguments.instances,
        synonyms=arguments.synonyms,
        fluency=arguments.fluency,
        on_problem=arguments.on_problem,
    )
    scores = score_results(arguments.results, arguments.references, scorer, arguments.split)
    for sentence in chain.from_iterable(each.sentences for each in scorer.problems):
        report(sentence)
    shared.write_scores(scores, arguments)
    return 2 if any(map(len, scorer.problems)) else 0


def run_maps(arguments: argparse.Namespace) -> int:
    """Score the maps, print the tables, write the files; 2 if a photo or record was left out."""
    shared.check_outputs(arguments, "--json", "--csv")
    if arguments.format or arguments.annotations or not arguments.images:
        shared.check_data_set(arguments)
    elif arguments.instances:  # They are of photos that are named as there.
        raise UserError("--instances needs the photos as a data set: give --annotations")

    from captioner import load
    from captioner.data.instances import Grounding, read_instances
    from captioner.data.shapes import ShapesGrounding
    from captioner.data.synonyms import read_synonyms
    from captioner.evaluation.maps import score_maps

    grounding: Grounding | None = None
    if arguments.instances:
        synonyms = read_synonyms(arguments.synonyms)
        grounding = read_instances(arguments.instances).grounding(synonyms)
    model = load(arguments.model, arguments.device, arguments.precision)
    examples, pictures, is_incomplete = _read_photos(arguments, model)
    if pictures:
        names = [each.image_id for each in examples]
        grounding = ShapesGrounding(dict(zip(names, pictures, strict=True)))
    with _left_out(arguments, len(examples)) as left_out:
        scores = score_maps(
            model,
            examples,
            grounding,
            shared.search_options(arguments, model.search),
            arguments.batch_size,
            left_out,
            exact=bool(pictures),
        )
    shared.write_scores(scores, arguments)
    return 2 if left_out or is_incomplete else 0


def _read_photos(
    arguments: argparse.Namespace, model: Captioner
) -> tuple[list[Example], list[ShapesExample], bool]:
    """The photos, the pictures if they are generated, and whether records were skipped."""
    from captioner.data.example import Example, Problems
    from captioner.data.readers import read_examples
    from captioner.data.shapes import shapes_examples, unseen_shapes
    from captioner.vision.find_images import find_images

    if arguments.count is not None and arguments.count < 1:
        raise UserError(f"--count {arguments.count} is not at least 1")
    if arguments.format == "shapes":
        pictures = unseen_shapes(model.preprocessing.size, arguments.count or 500)
        return shapes_examples(pictures), pictures, False
    problems = Problems(arguments.on_problem)
    if not arguments.annotations:
        examples = [Example(str(file), file) for file in find_images([arguments.images])]
    else:
        source = (arguments.annotations, arguments.images, arguments.split)
        examples = read_examples(arguments.format, *source, problems)
    for sentence in problems.sentences:
        report(sentence)
    return examples[: arguments.count], [], len(problems) > 0


@contextmanager
def _left_out(arguments: argparse.Namespace, total: int) -> Iterator[dict[str, str] | None]:
    """Yields a dictionary for unreadable photos, None to refuse them; reports it at the end."""
    left_out: dict[str, str] | None = {} if arguments.on_problem == "skip" else None
    try:
        yield left_out
    finally:
        if left_out:
            for reason in left_out.values():
                report(reason)
            report(f"{len(left_out):,} of {total:,} photos could not be read and do not count")
