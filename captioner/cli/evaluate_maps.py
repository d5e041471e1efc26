"""`captioner evaluate --maps`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from captioner.cli.options import refuse, search_options
from captioner.cli.report import report, report_left_out
from captioner.errors import UserError

if TYPE_CHECKING:
    from captioner.caption import Captioner
    from captioner.data.grounding import Grounding
    from captioner.data.source import Source
    from captioner.evaluation.map_scores import CurveOptions, MapScores

DESCRIPTION = """\
With --maps it is the attention maps that are scored: how wide they are, whether they move from
word to word, and, given boxes or segments for words, whether they lie on what the words name.
Blurring what a word attended (--deletion, --curves) needs no boxes, and works on any photo. It is
compared with blurring random places: those of one of the caption's own maps, moved at random. A
photo takes about 2 x (steps - 1) x (words + random orders) passes of the encoder, a few seconds on
a CPU.

  captioner evaluate --maps --model runs/shapes/model --format shapes --curves curves.png
  captioner evaluate --maps --model default --images photos/ --deletion
  captioner evaluate --maps --model default --format coco --images val2014/ \\
      --annotations captions_val2014.json --instances instances_val2014.json --csv words.csv
  captioner evaluate --maps --model default --format flickr8k --split test --images flickr30k/ \\
      --annotations results.token --entities flickr30k_entities/
"""

OWN = (
    *("entities", "deletion", "curves", "count", "curve_photos", "curve_steps", "random_orders"),
    *("curve_seed", "all_words"),
)
"""The options that have a meaning with --maps only; None where not given."""

OF_CURVES = ("curve_photos", "curve_steps", "random_orders", "curve_seed", "all_words")

NOT_OF_MAPS = ("results", "references", "save_results", "page", "n_best")

COUNT_OF_SHAPES = 500


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add --maps and the options that belong to it."""
    maps = parser.add_argument_group("attention maps")
    maps.add_argument("--maps", action="store_true", help="score the maps, not the captions")
    maps.add_argument(
        "--entities", metavar="FOLDER", help="Flickr30k Entities: boxes for the words of its photos"
    )
    maps.add_argument("--count", type=int, metavar="N", help="the first N photos only")
    maps.add_argument(
        "--deletion",
        action="store_true",
        default=None,
        help="blur what was attended, and random places (those of the caption's own maps, moved at "
        "random): does the word become less likely? A photo takes about "
        "2 x (steps - 1) x (words + random orders) passes of the encoder, a few seconds on a CPU",
    )
    maps.add_argument(
        "--curves", metavar="FILE", help="the same, at the same cost, drawn: a .png, .pdf or .svg"
    )
    maps.add_argument(
        "--curve-photos", type=int, metavar="N", help="photos to blur, the first N (default: 30)"
    )
    maps.add_argument(
        "--curve-steps", type=int, metavar="N", help="points of a curve after 0 (default: 10)"
    )
    maps.add_argument(
        "--random-orders", type=int, metavar="N", help="random places to compare with (default: 4)"
    )
    maps.add_argument("--curve-seed", type=int, metavar="SEED", help="of these (default: 0)")
    maps.add_argument(
        "--all-words",
        action="store_true",
        default=None,
        help="blur for articles, prepositions and the like too, which otherwise do not count",
    )


def run(arguments: argparse.Namespace) -> int:
    """Score the maps, print the tables, write the files asked for; 2 when a photo was left out."""
    _check(arguments)

    from captioner import load
    from captioner.evaluation.map_scores import score_maps
    from captioner.files import try_all, write_json

    curves = _curve_options(arguments)
    batch_size = 50 if arguments.batch_size is None else arguments.batch_size
    model = None
    if arguments.format == "shapes":  # Pictures are made in the size that the model sees.
        model = load(arguments.model, arguments.device)
    source, grounding = _what(arguments, model)
    if source.report:
        report(source.report)
    model = model or load(arguments.model, arguments.device)
    left_out: dict[str, str] | None = {} if arguments.on_problem == "skip" else None
    try:
        scores = score_maps(
            model,
            source,
            grounding,
            search_options(arguments, model.search),
            batch_size,
            curves,
            left_out,
            exact=arguments.format == "shapes",
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
    """Raise `UserError` for options that do not go together."""
    refuse(arguments, NOT_OF_MAPS, "with --maps")
    if not arguments.model:
        raise UserError("--maps scores the maps of a model: give --model")
    if arguments.batch_size is not None and arguments.batch_size < 1:
        raise UserError(f"--batch-size {arguments.batch_size} is not at least 1")
    if arguments.count is not None and arguments.count < 1:
        raise UserError(f"--count {arguments.count} is not at least 1")
    if arguments.entities and arguments.instances:
        raise UserError("give --entities or --instances, not both")
    if not arguments.instances:
        refuse(arguments, ("synonyms",), "without --instances")
    if not (arguments.deletion or arguments.curves):
        refuse(arguments, OF_CURVES, "without --deletion or --curves")
    if arguments.format == "shapes":
        generated = ("annotations", "images", "split", "on_problem", "instances", "entities")
        refuse(arguments, generated, "with --format shapes, which are generated")
    elif arguments.format is None:
        if not arguments.images:
            raise UserError("give --maps a data set (--format), or photos (--images)")
        named = ("annotations", "split", "instances", "entities")
        refuse(arguments, named, "without --format")
    elif not arguments.annotations:
        raise UserError(f"--format {arguments.format} needs --annotations")
    if arguments.curves:
        from captioner.render.curves import check_curves_path

        check_curves_path(arguments.curves)


def _curve_options(arguments: argparse.Namespace) -> CurveOptions | None:
    from captioner.evaluation.map_scores import CurveOptions

    if not (arguments.deletion or arguments.curves):
        return None
    given = {
        "photos": arguments.curve_photos,
        "steps": arguments.curve_steps,
        "random_orders": arguments.random_orders,
        "seed": arguments.curve_seed,
        "all_words": arguments.all_words,
    }
    return CurveOptions(**{name: value for name, value in given.items() if value is not None})


def _what(
    arguments: argparse.Namespace, model: Captioner | None
) -> tuple[Source, Grounding | None]:
    """The photos, and what knows where their things are."""
    from captioner.recipes.sources import read_split

    count = arguments.count or 0
    if model is not None:
        return _shapes(model, count or COUNT_OF_SHAPES)
    if arguments.format is None:
        from captioner.recipes.sources import photo_source

        return photo_source([arguments.images]).first(count), None
    grounding: Grounding | None = None
    if arguments.instances:
        from captioner.data.coco_instances import read_instances
        from captioner.data.synonyms import read_synonyms

        grounding = read_instances(arguments.instances).grounding(read_synonyms(arguments.synonyms))
    elif arguments.entities:
        from captioner.data.flickr30k_entities import read_entities

        grounding = read_entities(arguments.entities)
    source = read_split(
        arguments.format,
        arguments.annotations,
        arguments.images,
        arguments.split,
        arguments.on_problem or "refuse",
    )
    return source.first(count), grounding


def _shapes(model: Captioner, count: int) -> tuple[Source, Grounding]:
    from captioner.data.shapes_grounding import ShapesGrounding
    from captioner.recipes.shapes import unseen_shapes
    from captioner.recipes.sources import shapes_source

    examples = unseen_shapes(model, count)
    source = shapes_source(examples)
    return source, ShapesGrounding(dict(zip(source.image_ids, examples, strict=True)))


def _draw(path: str, scores: MapScores) -> None:
    from captioner.render.curves import CurvePanel, save_curves

    found, which = scores.curves, "content words"
    if found is None:
        found, which = scores.all_curves, "words"
    if found is None:
        raise UserError(f"{path} is not written: not one caption has a word to draw curves of")
    bands = "; bands: 95 % intervals" if found.photos > 1 else ""
    panels = [
        CurvePanel(
            title,
            doing,
            score.shares,
            score.curve,
            score.band,
            score.random_curve,
            score.random_band,
        )
        for title, doing, score in (
            ("Deletion", "blurred", found.deletion),
            ("Insertion", "shown, the rest blurred", found.insertion),
        )
    ]
    save_curves(
        path,
        panels,
        f"mean of {found.words:,} {which} of {found.photos:,} photos{bands}",
    )
