"""`captioner calibrate`."""

from __future__ import annotations

import argparse

from captioner.cli.photo_data import add_format, add_on_problem
from captioner.cli.report import report, report_scores
from captioner.cli.shared_options import (
    Commands,
    add_fields,
    add_machine,
    add_overwrite,
    add_parser,
    check_outputs,
    read_fields,
)
from captioner.errors import UserError
from captioner.evaluation import CalibrationOptions
from captioner.files import check_writable

DESCRIPTION = """\
Fits a trained model's confidence: the expected share of a caption's content
words that people use for the photo. Captions of low confidence are marked
"not sure".

  captioner calibrate runs/flickr8k/model --format flickr8k \\
      --annotations Flickr8k.token.txt --images photos/ --split val
  captioner calibrate runs/both/model --format table \\
      --annotations both.csv --split val-streets val-food --json out.json

The model captions the validation photos. The confidence is fitted to all of
them, measured on each split by two-fold cross-validation, and written to the
model folder.
"""

OPTIONS = {name: f"--{name.replace('_', '-')}" for name in CalibrationOptions.model_fields}
"""By field of `CalibrationOptions`."""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    summary, usage = "fit a model's confidence", "MODEL --format FORMAT [options]"
    parser = add_parser(commands, "calibrate", summary, DESCRIPTION, usage)
    given = parser.add_argument_group("input")
    given.add_argument("model", metavar="MODEL", help="a model folder; it is written to")
    add_format(given, required=True)
    given.add_argument(
        "--annotations", required=True, metavar="FILE", help="the captions, in that format"
    )
    given.add_argument("--images", metavar="FOLDER", help="the photos; optional for a table")
    given.add_argument(
        "--split",
        nargs="+",
        default=["val"],
        help="validation photos; splits count alike (default: val)",
    )
    given.add_argument(
        "--training-split",
        metavar="SPLIT",
        default="train",
        help="photos of it are refused as validation photos (default: %(default)s)",
    )
    add_on_problem(given, "records that cannot be used")
    fit = parser.add_argument_group("confidence")
    add_fields(fit, CalibrationOptions, OPTIONS)
    fit.add_argument("--json", metavar="FILE", help="write what was measured")
    add_overwrite(fit)
    add_machine(parser, "photos at a time", 50)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit, write to the model folder, print the measurements."""
    options = read_fields(arguments, CalibrationOptions, OPTIONS)

    from captioner.model_folders import model_folder, packaged_models
    from captioner.models import load

    folder = model_folder(arguments.model)
    if folder.resolve() in [model_folder(name).resolve() for name in packaged_models()]:
        raise UserError(
            f"{arguments.model} is in the package, and stays as it is; copy {folder}, and give the "
            "copy a confidence"
        )
    check_writable("MODEL", folder)
    check_outputs(arguments, "--json")

    from captioner.caption.folder import save_confidence
    from captioner.data.example import Problems
    from captioner.data.readers import read_examples
    from captioner.evaluation.calibration import calibrate

    problems = {
        split: Problems(arguments.on_problem or "refuse")
        for split in (arguments.training_split, *arguments.split)
    }
    sources = {
        split: read_examples(
            arguments.format, arguments.annotations, arguments.images, split, problems[split]
        )
        for split in problems
    }
    for sentence in dict.fromkeys(each.summary() for each in problems.values() if len(each)):
        report(sentence)
    # What is written into the folder does not depend on this machine's processor.
    model = load(folder, arguments.device, "float32")
    scores = calibrate(
        model,
        sources[arguments.training_split],
        {split: sources[split] for split in arguments.split},
        options,
        arguments.batch_size,
    )
    assert model.confidence is not None  # Just fitted.
    save_confidence(model.confidence, folder)
    report_scores(scores, arguments.json)
    print(f"written into {folder}", flush=True)
    return 2 if any(map(len, problems.values())) else 0
