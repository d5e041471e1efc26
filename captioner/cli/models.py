"""`captioner calibrate`, `export` and `info`: commands on whole models."""

import argparse
from pathlib import Path

from captioner.cli import shared_options as shared
from captioner.cli.program import report
from captioner.errors import UserError, counted
from captioner.files import check_files, check_writable
from captioner.model_folders import (
    MODEL,
    complete_folder,
    copy_model,
    described,
    is_address,
    kind_of,
    model_folder,
    packaged_models,
    pinned,
    saving,
)

CALIBRATE_DESCRIPTION = """\
Fits a trained model's confidence: the expected share of a caption's content
words that people use for the photo. Captions of low confidence are marked
"not sure".

  captioner calibrate runs/flickr8k/model --format flickr8k \\
      --annotations Flickr8k.token.txt --images photos/ --split val

The confidence is fitted to the validation photos, measured on each split by
two-fold cross-validation, and written to the model folder.
"""

EXPORT_DESCRIPTION = """\
Writes a captioner as ONNX graphs, which run without torch.

  captioner export default onnx/                              float32, 63 MB
  captioner export default page/ --precision int8 --page      a web page, 30 MB

In Python: captioner.load("onnx/").caption("photo.jpg"). The page needs a
web server for its files alone: photos stay in the browser.
"""

INFO_DESCRIPTION = """\
Describes a captioner or translator: its parts, its size, its model card.

  captioner info                 the packaged captioner
  captioner info english_german  the packaged translator into German
  captioner info hf://user/name  a model of the hub, with its revision
"""


def add_commands(commands: shared.Commands) -> None:
    """Add the three commands to the command line."""
    usage, summary = "calibrate MODEL --annotations FILE [options]", "fit a model's confidence"
    parser, add = shared.add_parser(commands, run_calibrate, usage, summary, CALIBRATE_DESCRIPTION)
    add("model", "MODEL", "a model folder; it is written to")
    shared.add_data_set(add, shared.FILE_FORMATS, "records that cannot be used")
    add("--split", "SPLIT", "of validation photos (default: val)", nargs="+", default=["val"])
    add("--training-split", "SPLIT", "of training photos, left out of validation", default="train")
    add = shared.add_group(parser, "confidence")
    add("--unsure-below", "X", "limit of a low confidence", default=0.25)
    shared.add_outputs(add, json="write what was measured")
    shared.add_machine(parser, "photos at a time", 50, precision=False)

    usage, summary = "export MODEL FOLDER [options]", "write a captioner as ONNX graphs"
    parser, _ = shared.add_parser(commands, run_export, usage, summary, EXPORT_DESCRIPTION)
    add = shared.add_group(parser, "input and output")
    add("model", "MODEL", "a model folder or name")
    add("folder", "FOLDER", "the folder to write")
    kinds = ("float32", "float16", "int8")
    about = "in which large weights are stored; all arithmetic is float32"
    add("--precision", f"{{{','.join(kinds)}}}", about, choices=kinds, default="float32")
    add("--page", "", "add a page for browsers, with onnxruntime-web, which npm fetches")
    add("--overwrite", "", "replace files of FOLDER")

    usage, summary = "info [MODEL]", "describe a model"
    _, add = shared.add_parser(commands, run_info, usage, summary, INFO_DESCRIPTION)
    add("model", "MODEL", shared.MODEL, nargs="?", default="default")


def run_calibrate(arguments: argparse.Namespace) -> int:
    """Fit, write to the model folder, print the measurements."""
    if not 0 <= arguments.unsure_below <= 1:
        raise UserError(f"--unsure-below {arguments.unsure_below} is not between 0 and 1")
    shared.check_data_set(arguments)

    folder = model_folder(arguments.model)
    if arguments.model in packaged_models() or is_address(arguments.model):
        raise UserError(f"{arguments.model} is packaged or on the hub; give a copy of {folder}")
    check_writable("MODEL", folder)
    shared.check_outputs(arguments, "--json")

    from captioner.caption.folder import load_model, save_confidence
    from captioner.data.example import Problems
    from captioner.data.readers import read_splits
    from captioner.devices import fast_device
    from captioner.evaluation.calibration import calibrate
    from captioner.evaluation.score import read_results
    from captioner.runs.caption_scores import RESULTS

    problems = Problems(arguments.on_problem)
    splits = [arguments.training_split, *arguments.split]
    training, *validation = read_splits(
        arguments.format, arguments.annotations, arguments.images, splits, problems
    )
    for sentence in problems.sentences:
        report(sentence)
    results = folder.parent / RESULTS  # In a run: the photos that chose the epoch.
    if folder.name == MODEL and results.is_file():
        names = {photo.name for photos in validation for photo in photos}
        if chosen := len(names & read_results(results).keys()):
            photos = f"{counted(chosen, 'photo')} of {' and '.join(arguments.split)}"
            advice = "its confidence may be too high; give photos that training did not use"
            report(f"{photos} chose the epoch of this model: {advice}")
    model = load_model(folder, fast_device(arguments.device)).for_inference()
    by_split = dict(zip(arguments.split, validation, strict=True))
    scores = calibrate(model, training, by_split, arguments.unsure_below, arguments.batch_size)
    assert model.confidence is not None  # Just fitted.
    save_confidence(model.confidence, folder)
    shared.write_scores(scores, arguments)
    print(f"written into {folder}", flush=True)
    return 2 if len(problems) else 0


def run_export(arguments: argparse.Namespace) -> None:
    """Export, print the size."""
    check_files([("FOLDER", arguments.folder)], arguments.overwrite, folders=("FOLDER",))

    from captioner.onnx.page import has_graphs_for_browsers, write_page

    folder = Path(arguments.folder)
    model = model_folder(arguments.model)
    stored = f"weights in {arguments.precision}"
    is_plain_page = arguments.page and arguments.precision == "float32"
    if is_plain_page and has_graphs_for_browsers(model):
        with saving(folder) as files:
            copy_model(complete_folder(model), files)
        stored = "weights as in MODEL"
    else:
        from captioner.caption.folder import load_model
        from captioner.onnx.export import export_captioner

        export_captioner(load_model(model).for_inference(), folder, arguments.precision)
    if arguments.page:
        write_page(folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {size / 1e6:.1f} MB, {stored}")


def run_info(arguments: argparse.Namespace) -> None:
    """Print the description."""
    name = pinned(arguments.model)
    description = _description(model_folder(name))
    print(f"revision       {name}\n{description}" if is_address(name) else description)


def _description(folder: Path) -> str:
    from captioner.models import load, load_translator

    if kind_of(folder) == "translator":
        translator = load_translator(folder)
        sizes = {"source": translator.source, "target": translator.target}
        return described(folder, {name: f"{len(part):,} tokens" for name, part in sizes.items()})
    return described(folder, {"vocabulary": f"{len(load(folder).vocabulary):,} words"})
