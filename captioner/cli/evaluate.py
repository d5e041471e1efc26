"""`captioner evaluate`: scores a model's captions on a data set."""

from __future__ import annotations

import argparse

from captioner.cli.photo_data import add_photos, add_scores, check_photos, load_with_photos
from captioner.cli.report import report_left_out, report_scores
from captioner.cli.shared_options import (
    Commands,
    add_machine,
    add_parser,
    add_search,
    check_outputs,
    search_options,
)
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError

DESCRIPTION = """\
Captions the photos of a data set and scores the captions: BLEU-1 to BLEU-4,
ROUGE-L, CIDEr-D, word-precision, and how varied they are.

  captioner evaluate default --format flickr8k --split val \\
      --annotations Flickr8k.token.txt --images photos/ --save-results out.json
  captioner evaluate runs/shapes/model --format shapes   (generated pictures)

`captioner score` does more with saved captions: comparisons, hallucination.
The exit code is 2 if a photo or record was skipped.
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    summary, usage = "score a model's captions on data", "MODEL --format FORMAT [options]"
    parser = add_parser(commands, "evaluate", summary, DESCRIPTION, usage)
    add_photos(parser)
    add_search(parser, SearchOptions, explained_in="caption")
    add_scores(parser).add_argument(
        "--save-results", metavar="FILE", help="write the captions, as COCO does"
    )
    add_machine(parser, "photos at a time", 50, precision=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Caption, score, print the table, write the files; 2 if a photo or record was left out."""
    check_outputs(arguments, "--json", "--csv", "--save-results")
    if arguments.format is None:
        raise UserError("give the data set: --format and --annotations, or --format shapes")
    check_photos(arguments)

    from captioner.evaluation.scorer import Scorer, score_model

    scorer = Scorer(
        metrics=arguments.metrics, confidence=arguments.confidence, fluency=arguments.fluency
    )
    model, examples, _, is_incomplete = load_with_photos(arguments)
    left_out: dict[str, str] | None = {} if arguments.on_problem == "skip" else None
    try:
        scores = score_model(
            model,
            examples,
            search_options(arguments, model.search),
            arguments.batch_size,
            arguments.save_results,
            left_out,
            scorer,
            arguments.model,
            exact=arguments.format == "shapes",
        )
    finally:
        report_left_out(left_out, len(examples))
    report_scores(scores, arguments.json, (arguments.csv, scores.write_csv))
    return 2 if left_out or is_incomplete else 0
