"""`captioner maps`: scores the attention maps of a model's captions."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from captioner.cli.output_files import check_outputs
from captioner.cli.photo_data import add_photos, check_photos, load_with_photos
from captioner.cli.report import report, report_left_out
from captioner.cli.shared_options import (
    Commands,
    add_machine,
    add_parser,
    add_search,
    refuse,
    search_options,
)
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError

if TYPE_CHECKING:
    from captioner.data.grounding import Grounding
    from captioner.evaluation.map_scores import CurveOptions, MapScores

DESCRIPTION = """\
Scores a model's attention maps: width, movement and, given boxes or segments,
whether they lie on what the words name. --deletion and --curves take about
2 x (steps - 1) x (words + random orders) passes of the encoder a photo.
If a photo or record was skipped, the exit code is 2.

  captioner maps default --images photos/ --deletion
  captioner maps runs/shapes/model --format shapes --curves curves.png
"""

CURVE_OPTIONS = ("curve_photos", "curve_steps", "random_orders", "curve_seed")

INPUTS = ("MODEL", "--annotations", "--images", "--instances", "--synonyms", "--entities")


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
    data.add_argument("--entities", metavar="FOLDER", help="boxes of Flickr30k Entities")
    blur = parser.add_argument_group("deletion and insertion")
    blur.add_argument("--deletion", action="store_true", help="blur what a word attended")
    blur.add_argument("--curves", metavar="FILE", help="likewise, drawn: a .png, .pdf or .svg")
    blur.add_argument(
        "--curve-photos", type=int, metavar="N", help="blur the first N photos (default: 30)"
    )
    blur.add_argument(
        "--curve-steps", type=int, metavar="N", help="points of a curve after 0 (default: 10)"
    )
    blur.add_argument(
        "--random-orders",
        type=int,
        metavar="N",
        help="own maps moved at random to compare (default: 4)",
    )
    blur.add_argument("--curve-seed", type=int, metavar="N", help="of these (default: 0)")
    add_search(parser, SearchOptions, explained_in="caption")
    out = parser.add_argument_group("output")
    out.add_argument("--json", metavar="FILE", help="write the scores")
    out.add_argument("--csv", metavar="FILE", help="write the scores of every word")
    add_machine(parser, "photos at a time", 50, precision=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Score the maps, print the tables, write the files; 2 if a photo or record was left out."""
    check_outputs(arguments, INPUTS, ("--json", "--csv", "--curves"))
    _check(arguments)

    from captioner.evaluation.map_scores import score_maps
    from captioner.files import try_all, write_json

    curves = _curve_options(arguments)
    grounding = _read_grounding(arguments)
    model, source, examples = load_with_photos(arguments)
    if examples:
        from captioner.data.shapes_grounding import ShapesGrounding

        grounding = ShapesGrounding(dict(zip(source.image_ids, examples, strict=True)))
    if source.report:
        report(source.report)
    left_out: dict[str, str] | None = {} if arguments.on_problem == "skip" else None
    try:
        scores = score_maps(
            model,
            source,
            grounding,
            search_options(arguments, model.search),
            arguments.batch_size,
            curves,
            left_out,
            exact=bool(examples),
        )
    finally:
        report_left_out(left_out, len(source))
    print(scores.table(), flush=True)
    writers: list[Callable[[], None]] = []
    if arguments.json:
        writers.append(partial(write_json, arguments.json, scores.as_dict()))
    if arguments.csv:
        writers.append(partial(scores.save_csv, arguments.csv))
    if arguments.curves:
        writers.append(partial(_draw, arguments.curves, scores))
    try_all(writers)
    return 2 if left_out or source.report else 0


def _check(arguments: argparse.Namespace) -> None:
    """Raise `UserError` for options that exclude each other."""
    if arguments.entities and arguments.instances:
        raise UserError("give --entities or --instances, not both")
    if not arguments.instances:
        refuse(arguments, ("synonyms",), "without --instances")
    if not (arguments.deletion or arguments.curves):
        refuse(arguments, CURVE_OPTIONS, "without --deletion or --curves")
    check_photos(arguments)
    if arguments.format == "shapes":
        refuse(arguments, ("instances", "entities"), "with --format shapes, which are generated")
    elif arguments.format is None:
        if not arguments.images:
            raise UserError("give a data set (--format), or photos (--images)")
        named = ("annotations", "split", "instances", "entities")
        refuse(arguments, named, "without --format")
    if arguments.curves:
        from captioner.render.save import PLOT_SUFFIXES, check_suffix

        check_suffix(arguments.curves, PLOT_SUFFIXES)


def _curve_options(arguments: argparse.Namespace) -> CurveOptions | None:
    from captioner.evaluation.map_scores import CurveOptions

    if not (arguments.deletion or arguments.curves):
        return None
    given = {
        "photos": arguments.curve_photos,
        "steps": arguments.curve_steps,
        "random_orders": arguments.random_orders,
        "seed": arguments.curve_seed,
    }
    return CurveOptions(**{name: value for name, value in given.items() if value is not None})


def _read_grounding(arguments: argparse.Namespace) -> Grounding | None:
    if arguments.instances:
        from captioner.data.coco_instances import read_instances
        from captioner.data.synonyms import read_synonyms

        return read_instances(arguments.instances).grounding(read_synonyms(arguments.synonyms))
    if arguments.entities:
        from captioner.data.flickr30k_entities import read_entities

        return read_entities(arguments.entities)
    return None


def _draw(path: str, scores: MapScores) -> None:
    from captioner.render.curves import save_curves

    curves = scores.curves
    if curves is None:
        raise UserError(f"{path} is not written: not one caption has a content word")
    bands = "; bands: 95 % intervals" if curves.photos > 1 else ""
    save_curves(
        path,
        [
            ("Deletion", "blurred", curves.deletion),
            ("Insertion", "shown, the rest blurred", curves.insertion),
        ],
        f"mean of {curves.words:,} content words of {curves.photos:,} photos{bands}",
    )
