"""`captioner evaluate`."""

from __future__ import annotations

import argparse

from captioner.cli import evaluate_captions, evaluate_maps
from captioner.cli.options import Commands, add_device, add_parser, add_search, refuse

DESCRIPTION = """\
Scores captions: BLEU-1 to BLEU-4, ROUGE-L and CIDEr-D, with the brevity penalty beside them; then
how varied their text is. METEOR and SPICE, which need Java, are computed on request (--metrics).

A file of captions in COCO's result format, against COCO's annotation format:

  captioner evaluate --results results.json --references captions_val2014.json
  captioner evaluate --results results.json --references captions_val2014.json --confidence \\
      --csv scores.csv --page best_and_worst.html --images val2014/
  captioner evaluate --results results.json --references captions_val2014.json --against other.json

A single photo: CIDEr-D then needs to know which words are rare, from a larger set of references:

  captioner evaluate --references captions_val2014.json --write-document-frequency frequency.json
  captioner evaluate --results one.json --references captions_val2014.json \\
      --document-frequency frequency.json

Things that captions name and that are not in the photo, by COCO's instances:

  captioner evaluate --results results.json --references captions_val2014.json \\
      --instances instances_val2014.json

A model, free-running, on a data set; its captions may be kept with --save-results:

  captioner evaluate --model runs/flickr8k/model --format flickr8k --split val \\
      --annotations Flickr8k.token.txt --images Flicker8k_Dataset

A model of the generated shapes, on pictures it has not seen: exact captions, and how much of each
map lies inside the box of the thing the word names:

  captioner evaluate --model runs/shapes/model --format shapes

"""
DESCRIPTION += evaluate_maps.DESCRIPTION

FORMATS = ("coco", "karpathy", "flickr8k", "table", "shapes")


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_parser(commands, "evaluate", "score captions, a model or its maps", DESCRIPTION)
    files = parser.add_argument_group("captions from a file")
    files.add_argument("--results", metavar="FILE", help="captions, in COCO's result format")
    files.add_argument(
        "--references", metavar="FILE", help="references, in COCO's format, or as --format says"
    )
    model = parser.add_argument_group("captions from a model")
    model.add_argument("--model", help="a model folder, or a packaged model")
    model.add_argument("--format", choices=FORMATS, help="of the data set, or of --references")
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
    evaluate_captions.add_options(parser)
    evaluate_maps.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Score the captions, or with --maps the maps."""
    if arguments.maps:
        refuse(arguments, evaluate_captions.OWN, "with --maps")
        return evaluate_maps.run(arguments)
    refuse(arguments, evaluate_maps.OWN, "without --maps")
    return evaluate_captions.run(arguments)
