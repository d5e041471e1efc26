"""`captioner score` and `captioner document-frequency`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from captioner.cli.photo_data import add_format, add_scores
from captioner.cli.report import report, report_scores
from captioner.cli.shared_options import (
    Commands,
    Group,
    add_overwrite,
    add_parser,
    check_outputs,
    refuse,
)

if TYPE_CHECKING:
    from captioner.evaluation.caption_scorer import Scorer

DESCRIPTION = """\
Scores captions in COCO's result format against references: BLEU-1 to BLEU-4,
ROUGE-L, CIDEr-D, word-precision, and how varied they are.

  captioner score out.json captions.json --confidence --csv scores.csv
  captioner score out.json captions.json --page page.html --images val/
  captioner score out.json captions.json --against other.json

CIDEr-D of one photo needs --document-frequency.
"""

FREQUENCY_DESCRIPTION = """\
Counts the images whose references have each n-gram, for CIDEr-D.

  captioner document-frequency captions.json frequency.json
  captioner score one.json captions.json --document-frequency frequency.json
"""


def add_command(commands: Commands) -> None:
    """Add both commands to the command line."""
    summary, usage = "score captions in a file", "RESULTS REFERENCES [options]"
    parser = add_parser(commands, "score", summary, DESCRIPTION, usage)
    given = parser.add_argument_group("input")
    given.add_argument("results", metavar="RESULTS", help="captions, in COCO's result format")
    _add_references(given)
    scores = add_scores(parser)
    scores.add_argument(
        "--document-frequency",
        metavar="FILE",
        help="of CIDEr-D (default: of the references)",
    )
    more = parser.add_argument_group("comparison")
    more.add_argument("--against", metavar="FILE", help="compare with captions of another system")
    more.add_argument(
        "--training-captions",
        metavar="FILE",
        help="count captions seen in training (split train)",
    )
    things = parser.add_argument_group("hallucination")
    things.add_argument(
        "--instances", nargs="+", metavar="FILE", help="COCO's instances: the things in the photos"
    )
    things.add_argument(
        "--synonyms", metavar="FILE", help="words for these (default: the packaged list)"
    )
    page = parser.add_argument_group("page")
    page.add_argument("--page", metavar="FILE", help="write a web page of the 20 best and worst")
    page.add_argument("--images", metavar="FOLDER", help="the photos")
    parser.set_defaults(run=run)

    summary, usage = "count n-grams for CIDEr-D", "REFERENCES FILE [options]"
    frequency = add_parser(commands, "document-frequency", summary, FREQUENCY_DESCRIPTION, usage)
    group = frequency.add_argument_group("arguments")
    _add_references(group)
    group.add_argument("file", metavar="FILE", help="the file to write")
    add_overwrite(group)
    frequency.set_defaults(run=run_document_frequency)


def _add_references(group: Group) -> None:
    group.add_argument("references", metavar="REFERENCES", help="captions, in --format")
    add_format(group, default="coco")
    group.add_argument("--split", help="as the format names it (default: all)")


def run(arguments: argparse.Namespace) -> int:
    """Score, print the tables, write the files; 2 if a photo of the page could not be read."""
    check_outputs(arguments, "--json", "--csv", "--page")
    scorer = _scorer(arguments)

    from captioner.evaluation.score_captions import score_results

    scores = score_results(
        arguments.results,
        arguments.references,
        scorer,
        arguments.format,
        arguments.split,
        arguments.images,
    )
    unread: list[str] = []

    def write_page(path: str) -> None:
        unread.extend(scores.write_page(path))

    report_scores(
        scores, arguments.json, (arguments.csv, scores.write_csv), (arguments.page, write_page)
    )
    for sentence in unread:
        report(sentence)
    return 2 if unread else 0


def run_document_frequency(arguments: argparse.Namespace) -> int:
    """Count the document frequency of the references and write it."""
    check_outputs(arguments, "FILE")

    from captioner.evaluation.score_captions import store_document_frequency

    frequency = store_document_frequency(
        arguments.references, arguments.file, arguments.format, arguments.split
    )
    print(f"{arguments.file}: document frequency of {frequency.images:,} images", flush=True)
    return 0


def _scorer(arguments: argparse.Namespace) -> Scorer:
    """The scorer. Raises `UserError` for options that exclude each other."""
    from captioner.evaluation.caption_scorer import Scorer

    if "CIDEr-D" not in arguments.metrics:
        refuse(arguments, ("document_frequency",), "where CIDEr-D is not among the metrics")
    if not arguments.instances:
        refuse(arguments, ("synonyms",), "without --instances")
    if not arguments.page:
        refuse(arguments, ("images",), "without --page")
    return Scorer(
        metrics=arguments.metrics,
        document_frequency=arguments.document_frequency,
        confidence=arguments.confidence,
        against=arguments.against,
        training=arguments.training_captions,
        training_format=arguments.format,
        instances=arguments.instances or (),
        synonyms=arguments.synonyms,
    )
