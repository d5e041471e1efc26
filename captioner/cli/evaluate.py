"""`captioner evaluate`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from captioner.cli.options import Commands, add_device, add_parser, add_search, search_options
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


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_parser(commands, "evaluate", "score captions, or a model", DESCRIPTION)
    files = parser.add_argument_group("captions from a file")
    files.add_argument("--results", metavar="FILE", help="captions, in COCO's result format")
    files.add_argument("--references", metavar="FILE", help="references, in COCO's format")
    model = parser.add_argument_group("captions from a model")
    model.add_argument("--model", help="a model folder, or a packaged model")
    model.add_argument("--format", help="coco, karpathy, flickr8k, table or shapes")
    model.add_argument("--annotations", metavar="FILE")
    model.add_argument("--images", metavar="FOLDER")
    model.add_argument("--split", help="as the format names it")
    model.add_argument("--batch-size", type=int, default=50, help="default: %(default)s")
    model.add_argument("--save-results", metavar="FILE", help="keep the captions")
    add_device(model)  # type: ignore[arg-type]
    add_search(parser)
    parser.add_argument("--json", metavar="FILE", help="write the scores")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Score, print the table, write the files asked for."""
    from captioner.files import write_json

    scores: CaptionScores | ShapesScores
    if arguments.results and arguments.references:
        from captioner.recipes.scoring import score_results

        scores = score_results(arguments.results, arguments.references)
    elif arguments.model and arguments.format == "shapes":
        from captioner import load
        from captioner.devices import choose_device
        from captioner.recipes.shapes import score_shapes

        model = load(arguments.model, choose_device(arguments.device))
        scores = score_shapes(model, search=search_options(arguments, model.search))
    elif arguments.model and arguments.format and arguments.annotations:
        from captioner import load
        from captioner.devices import choose_device
        from captioner.recipes.scoring import score_model
        from captioner.recipes.sources import read_split

        source = read_split(
            arguments.format, arguments.annotations, arguments.images, arguments.split
        )
        model = load(arguments.model, choose_device(arguments.device))
        scores = score_model(
            model,
            source,
            search_options(arguments, model.search),
            arguments.batch_size,
            arguments.save_results,
        )
    else:
        raise UserError("give --results and --references, or --model, --format and --annotations")
    print(scores.table())
    if arguments.json:
        write_json(arguments.json, scores.as_dict())
    return 0
