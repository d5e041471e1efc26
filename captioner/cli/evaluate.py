"""`captioner evaluate`."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from captioner.cli.options import (
    SEARCH,
    Commands,
    add_device,
    add_parser,
    add_search,
    refuse,
    search_options,
)
from captioner.errors import UserError

if TYPE_CHECKING:
    from captioner.evaluation.captions import CaptionScores
    from captioner.recipes.shapes import ShapesScores

DESCRIPTION = """\
Scores captions: BLEU-1 to BLEU-4, ROUGE-L and CIDEr-D, with the brevity penalty beside them.

A file of captions in COCO's result format, against COCO's annotation format:

  captioner evaluate --results results.json --references captions_val2014.json

A model, free-running, on a data set; its captions may be kept with --save-results:

  captioner evaluate --model runs/flickr8k/model --format flickr8k --split val \\
      --annotations Flickr8k.token.txt --images Flicker8k_Dataset

A model of the generated shapes, on pictures it has not seen: exact captions, and how much of each
map lies inside the box of the thing the word names:

  captioner evaluate --model runs/shapes/model --format shapes
"""

FORMATS = ("coco", "karpathy", "flickr8k", "table", "shapes")
OF_DATA = ("annotations", "images", "split", "on_problem", "save_results")
OF_MODEL = ("model", "format", *OF_DATA, "batch_size", *SEARCH)


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_parser(commands, "evaluate", "score captions, or a model", DESCRIPTION)
    files = parser.add_argument_group("captions from a file")
    files.add_argument("--results", metavar="FILE", help="captions, in COCO's result format")
    files.add_argument("--references", metavar="FILE", help="references, in COCO's format")
    model = parser.add_argument_group("captions from a model")
    model.add_argument("--model", help="a model folder, or a packaged model")
    model.add_argument("--format", choices=FORMATS, help="of the data set")
    model.add_argument("--annotations", metavar="FILE", help="the captions, in that format")
    model.add_argument(
        "--images", metavar="FOLDER", help="the photos; a table can do without, its paths are whole"
    )
    model.add_argument("--split", help="as the format names it")
    model.add_argument(
        "--on-problem",
        choices=("refuse", "skip"),
        help="at a photo or record that cannot be read: stop, or leave it out (default: refuse)",
    )
    model.add_argument("--batch-size", type=int, help="photos worked on at a time (default: 50)")
    model.add_argument(
        "--save-results", metavar="FILE", help="keep the captions, in COCO's result format"
    )
    add_device(model)  # type: ignore[arg-type]
    add_search(parser)
    parser.add_argument("--json", metavar="FILE", help="write the scores")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Score, print the table, write the files asked for."""
    from captioner.files import write_json

    if arguments.results or arguments.references:
        scores = _score_files(arguments)
    elif arguments.model and arguments.format == "shapes":
        scores = _score_shapes(arguments)
    elif arguments.model and arguments.format and arguments.annotations:
        scores = _score_model(arguments)
    else:
        raise UserError("give --results and --references, or --model, --format and --annotations")
    print(scores.table())
    if arguments.json:
        write_json(arguments.json, scores.as_dict())
    return 0


def _score_files(arguments: argparse.Namespace) -> CaptionScores | ShapesScores:
    from captioner.recipes.scoring import score_results

    refuse(arguments, OF_MODEL, "where --results and --references are scored")
    if not (arguments.results and arguments.references):
        raise UserError("give --results and --references together")
    return score_results(arguments.results, arguments.references)


def _score_shapes(arguments: argparse.Namespace) -> CaptionScores | ShapesScores:
    from captioner import load
    from captioner.recipes.shapes import score_shapes

    refuse(arguments, OF_DATA, "with --format shapes, which are generated")
    model = load(arguments.model, arguments.device)
    search = search_options(arguments, model.search)
    return score_shapes(model, search=search, batch_size=_batch_size(arguments))


def _score_model(arguments: argparse.Namespace) -> CaptionScores | ShapesScores:
    from captioner import load
    from captioner.recipes.scoring import score_model
    from captioner.recipes.sources import read_split

    batch_size = _batch_size(arguments)
    on_problem = arguments.on_problem or "refuse"
    source = read_split(
        arguments.format, arguments.annotations, arguments.images, arguments.split, on_problem
    )
    if source.report:
        _report(source.report)
    model = load(arguments.model, arguments.device)
    search = search_options(arguments, model.search)
    left_out: dict[str, str] | None = {} if on_problem == "skip" else None
    try:
        return score_model(model, source, search, batch_size, arguments.save_results, left_out)
    finally:
        for reason in (left_out or {}).values():
            _report(reason)
        if left_out:
            _report(
                f"{len(left_out):,} of {len(source):,} photos could not be read and do not count"
            )


def _batch_size(arguments: argparse.Namespace) -> int:
    size: int = 50 if arguments.batch_size is None else arguments.batch_size
    if size < 1:
        raise UserError(f"--batch-size {size} is not at least 1")
    return size


def _report(sentence: str) -> None:
    print(f"captioner: {sentence}", file=sys.stderr, flush=True)
