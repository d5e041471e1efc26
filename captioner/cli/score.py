"""`captioner score`: scores captions in a file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from captioner.cli.photo_data import add_format, add_scores
from captioner.cli.report import report_scores
from captioner.cli.shared_options import (
    Commands,
    add_parser,
    check_outputs,
    refuse,
)

if TYPE_CHECKING:
    from captioner.evaluation.scorer import Scorer

DESCRIPTION = """\
Scores captions in COCO's result format against references: BLEU-1 to BLEU-4,
ROUGE-L, CIDEr-D, word-precision, and how varied they are.

  captioner score out.json captions.json --confidence --csv scores.csv
  captioner score out.json captions.json --against other.json

CIDEr-D of one photo needs --document-frequency, a file of more captions.
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    summary, usage = "score captions in a file", "RESULTS REFERENCES [options]"
    parser = add_parser(commands, "score", summary, DESCRIPTION, usage)
    given = parser.add_argument_group("input")
    given.add_argument("results", metavar="RESULTS", help="captions, in COCO's result format")
    given.add_argument("references", metavar="REFERENCES", help="captions, in --format")
    add_format(given, default="coco")
    given.add_argument("--split", help="as the format names it (default: all)")
    scores = add_scores(parser)
    scores.add_argument(
        "--document-frequency",
        metavar="FILE",
        help="captions over which CIDEr-D counts rarity (default: the references)",
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
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Score, print the tables, write the files."""
    check_outputs(arguments, "--json", "--csv")
    scorer = _scorer(arguments)

    from captioner.evaluation.scorer import score_results

    scores = score_results(
        arguments.results,
        arguments.references,
        scorer,
        arguments.format,
        arguments.split,
    )
    report_scores(scores, arguments.json, (arguments.csv, scores.write_csv))
    return 0


def _scorer(arguments: argparse.Namespace) -> Scorer:
    """The scorer. Raises `UserError` for options that exclude each other."""
    from captioner.evaluation.scorer import Scorer

    if "CIDEr-D" not in arguments.metrics:
        refuse(arguments, ("document_frequency",), "where CIDEr-D is not among the metrics")
    if not arguments.instances:
        refuse(arguments, ("synonyms",), "without --instances")
    return Scorer(
        metrics=arguments.metrics,
        document_frequency=arguments.document_frequency,
        confidence=arguments.confidence,
        against=arguments.against,
        training=arguments.training_captions,
        format=arguments.format,
        instances=arguments.instances or (),
        synonyms=arguments.synonyms,
        fluency=arguments.fluency,
    )
