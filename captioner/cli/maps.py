"""`captioner maps`: scores the attention maps of a model's captions."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from captioner.cli.photo_data import add_photos, check_photos, load_with_photos
from captioner.cli.report import report_left_out, report_scores
from captioner.cli.shared_options import (
    Commands,
    add_machine,
    add_overwrite,
    add_parser,
    add_search,
    check_outputs,
    refuse,
    search_options,
)
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError

if TYPE_CHECKING:
    from captioner.data.instances import Grounding

DESCRIPTION = """\
Scores a model's attention maps: width, movement and, given boxes or segments,
whether they lie on what the words name.
If a photo or record was skipped, the exit code is 2.

  captioner maps default --images photos/
  captioner maps runs/shapes/model --format shapes --csv words.csv
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    summary = "score a model's attention maps"
    usage = "MODEL (--format FORMAT | --images FOLDER) [options]"
    parser = add_parser(commands, "maps", summary, DESCRIPTION, usage)
    data = add_photos(parser)
    data.add_argument("--instances", nargs="+", metavar="FILE", help="COCO's boxes and segments")
    data.add_argument(
        "--synonyms", metavar="FILE", help="words for these (default: the packaged list)"
    )
    add_search(parser, SearchOptions, explained_in="caption")
    out = parser.add_argument_group("output")
    out.add_argument("--json", metavar="FILE", help="write the scores")
    out.add_argument("--csv", metavar="FILE", help="write the scores of every word")
    add_overwrite(out)
    add_machine(parser, "photos at a time", 50, precision=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Score the maps, print the tables, write the files; 2 if a photo or record was left out."""
    check_outputs(arguments, "--json", "--csv")
    _check(arguments)

    from captioner.evaluation.map_scores import score_maps

    grounding = _read_grounding(arguments)
    model, examples, pictures, is_incomplete = load_with_photos(arguments)
    if pictures:
        from captioner.data.shapes import ShapesGrounding

        grounding = ShapesGrounding(
            {e.image_id: p for e, p in zip(examples, pictures, strict=True)}
        )
    left_out: dict[str, str] | None = {} if arguments.on_problem == "skip" else None
    try:
        scores = score_maps(
            model,
            examples,
            grounding,
            search_options(arguments, model.search),
            arguments.batch_size,
            left_out,
            exact=bool(pictures),
        )
    finally:
        report_left_out(left_out, len(examples))
    report_scores(scores, arguments.json, (arguments.csv, scores.write_csv))
    return 2 if left_out or is_incomplete else 0


def _check(arguments: argparse.Namespace) -> None:
    """Raise `UserError` for options that exclude each other."""
    if not arguments.instances:
        refuse(arguments, ("synonyms",), "without --instances")
    check_photos(arguments)
    if arguments.format == "shapes":
        refuse(arguments, ("instances",), "with --format shapes, which are generated")
    elif arguments.format is None:
        if not arguments.images:
            raise UserError("give a data set (--format), or photos (--images)")
        named = ("annotations", "split", "instances")
        refuse(arguments, named, "without --format")


def _read_grounding(arguments: argparse.Namespace) -> Grounding | None:
    if arguments.instances:
        from captioner.data.instances import read_instances
        from captioner.data.synonyms import read_synonyms

        return read_instances(arguments.instances).grounding(read_synonyms(arguments.synonyms))
    return None
