"""`captioner calibrate`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import chain

from captioner.cli import shared_options as shared
from captioner.cli.program import report
from captioner.errors import UserError, counted
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


def add_commands(commands: shared.Commands) -> None:
    """Add the command to the command line."""
    summary, usage = "fit a model's confidence", "MODEL --annotations FILE [options]"
    parser = shared.add_parser(commands, "calibrate", run, summary, usage, DESCRIPTION)
    given = parser.add_argument_group("input")
    given.add_argument("model", metavar="MODEL", help="a model folder; it is written to")
    shared.add_data_set(given, shared.FILES, "records that cannot be used")
    about = "validation photos; splits count alike (default: val)"
    given.add_argument("--split", nargs="+", default=["val"], help=about)
    about = "photos of it are refused as validation photos (default: %(default)s)"
    given.add_argument("--training-split", metavar="SPLIT", default="train", help=about)
    fit = parser.add_argument_group("confidence")
    about = "limit of a low confidence (default: %(default)s)"
    fit.add_argument("--unsure-below", type=float, metavar="X", default=0.25, help=about)
    shared.add_outputs(fit, json="write what was measured")
    shared.add_machine(parser, "photos at a time", 50)


def run(arguments: argparse.Namespace) -> int:
    """Fit, write to the model folder, print the measurements."""
    if not 0 <= arguments.unsure_below <= 1:
        raise UserError(f"--unsure-below {arguments.unsure_below} is not between 0 and 1")
    shared.check_data_set(arguments)

    from captioner.hub import is_address
    from captioner.model_folders import MODEL, model_folder, packaged_models
    from captioner.models import load

    folder = model_folder(arguments.model)
    if arguments.model in packaged_models() or is_address(arguments.model):
        raise UserError(
            f"{arguments.model} is in the package or on the hub, and stays as it is; give a copy "
            f"of {folder}"
        )
    check_writable("MODEL", folder)
    shared.check_outputs(arguments, "--json")

    from captioner.caption.folder import save_confidence
    from captioner.data.example import Example, Problems
    from captioner.data.readers import read_examples
    from captioner.evaluation.calibration import calibrate
    from captioner.evaluation.score import read_results
    from captioner.runs.caption_task import RESULTS

    examples: dict[str, Sequence[Example]] = {}
    problems = []
    for split in (arguments.training_split, *arguments.split):
        problems.append(Problems(arguments.on_problem))
        source = (arguments.annotations, arguments.images, split)
        examples[split] = read_examples(arguments.format, *source, problems[-1])
    for sentence in dict.fromkeys(chain.from_iterable(each.sentences for each in problems)):
        report(sentence)
    results = folder.parent / RESULTS  # Of the photos that chose the epoch, in a run.
    if folder.name == MODEL and results.is_file():
        validated = read_results(results).keys()
        given = {each.name for split in arguments.split for each in examples[split]}
        if chosen := len(given & validated):
            report(
                f"{counted(chosen, 'photo')} of {' and '.join(arguments.split)} chose the epoch of "
                "this model, whose confidence may be too high: give photos that training did not "
                "use"
            )
    # What is written into the folder does not depend on this machine's processor.
    model = load(folder, arguments.device, "float32")
    validation = {split: examples[split] for split in arguments.split}
    training = examples[arguments.training_split]
    scores = calibrate(model, training, validation, arguments.unsure_below, arguments.batch_size)
    assert model.confidence is not None  # Just fitted.
    save_confidence(model.confidence, folder)
    shared.write_scores(scores, arguments)
    print(f"written into {folder}", flush=True)
    return 2 if any(map(len, problems)) else 0
