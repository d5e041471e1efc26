"""`captioner calibrate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from captioner.cli.options import Commands, add_device, add_parser
from captioner.errors import UserError
from captioner.files import check_output, check_writable, real_path

DESCRIPTION = """\
Gives a trained model its confidence, so that captions say how far they are to be trusted: the share
of a caption's content words that people are expected to use of the photo, near 0 for a picture that
the model cannot describe. A low one is called "not sure".

  captioner calibrate --model runs/flickr8k/model --format flickr8k \\
      --annotations Flickr8k.token.txt --images photos/ --split val --training-split train
  captioner calibrate --model runs/coco/model --format coco --annotations annotations/ \\
      --images coco/ --split val2014 --training-split train2014 --json calibration.json

Training photos say what is familiar; the model captions validation photos and generated pictures
that are no photos (noise, plain colours, screenshots, drawings). It is fitted on one half of the
validation photos and on some kinds of pictures, and measured on the other half and other kinds,
which is printed. Then it is written into the model folder; a folder that had one gets the new one.
"""

FORMATS = ("coco", "karpathy", "flickr8k", "table")


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_parser(commands, "calibrate", "give a model its confidence", DESCRIPTION)
    parser.add_argument(
        "--model", required=True, help="a model folder, or a packaged model; it is written to"
    )
    parser.add_argument("--format", required=True, choices=FORMATS, help="of the data set")
    parser.add_argument(
        "--annotations", required=True, metavar="FILE", help="the captions, in that format"
    )
    parser.add_argument(
        "--images", metavar="FOLDER", help="the photos; a table can do without, its paths are whole"
    )
    parser.add_argument(
        "--split", default="val", help="photos to fit and measure on (default: %(default)s)"
    )
    parser.add_argument(
        "--training-split",
        default="train",
        help="photos the model was trained on (default: %(default)s)",
    )
    parser.add_argument(
        "--training-photos",
        type=int,
        metavar="N",
        help="of these, spread evenly, say what is familiar (default: 2000)",
    )
    parser.add_argument(
        "--outliers", type=int, metavar="N", help="generated pictures of a kind (default: 40)"
    )
    parser.add_argument(
        "--unsure-below", type=float, metavar="SHARE", help="confidence that is low (default: 0.25)"
    )
    parser.add_argument("--seed", type=int, help="of the halves and the pictures (default: 0)")
    parser.add_argument("--batch-size", type=int, help="photos worked on at a time (default: 50)")
    parser.add_argument("--json", metavar="FILE", help="write what was measured")
    add_device(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit, write into the model folder, print what was measured."""
    from captioner.models import load, model_folder

    folder = model_folder(arguments.model)
    _check_files(arguments, folder)

    from captioner.caption.captioner_folder import save_confidence
    from captioner.files import write_json
    from captioner.recipes.calibration import CalibrationOptions, calibrate
    from captioner.recipes.sources import read_split

    names = ("training_photos", "outliers", "unsure_below", "seed", "batch_size")
    given = {name: getattr(arguments, name) for name in names}
    options = CalibrationOptions(**{n: value for n, value in given.items() if value is not None})
    training, validation = (
        read_split(arguments.format, arguments.annotations, arguments.images, split)
        for split in (arguments.training_split, arguments.split)
    )
    model = load(folder, arguments.device)
    report = calibrate(model, training, validation, options)
    assert model.confidence is not None  # Just fitted.
    save_confidence(model.confidence, folder)
    print(report.table())
    print(f"written into {folder}", flush=True)
    if arguments.json:
        write_json(arguments.json, report.as_dict())
    return 0


def _check_files(arguments: argparse.Namespace, folder: Path) -> None:
    """Raise `UserError`, before any work, for what cannot be written in the end."""
    check_writable("--model", folder)
    if arguments.json is None:
        return
    if not arguments.json:
        raise UserError("--json is empty; it should name a file")
    check_output("--json", arguments.json)
    place = Path(real_path(arguments.json))
    for read in (arguments.annotations, arguments.images, folder):
        if read and place.exists() and place.is_relative_to(real_path(read)):
            raise UserError(f"--json would replace {arguments.json}, which may be read from {read}")
