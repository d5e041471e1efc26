"""`captioner calibrate`, `convert`, `export` and `info`: commands on whole models."""

import argparse
import re
from collections import Counter
from collections.abc import Mapping
from math import prod
from pathlib import Path

from captioner.cli import shared_options as shared
from captioner.cli.program import report
from captioner.errors import CONTROLS, UserError, counted
from captioner.files import check_files
from captioner.model_folders import (
    CARD,
    GRAPHS,
    MODEL,
    WEIGHTS,
    ModelFolder,
    is_address,
    model_folder,
    other_backends,
    own_folder,
    pinned,
)
from captioner.schema import flat
from captioner.weight_files import weights_header


def add_commands(commands: shared.Commands) -> None:
    """Add the four commands to the command line."""
    usage, summary = "calibrate MODEL --annotations FILE [options]", "fit a model's confidence"
    parser, add = shared.add_parser(commands, run_calibrate, usage, summary)
    add("model", "MODEL", "a model folder, which is written to; with --out any model")
    shared.add_data_set(add, shared.FILE_FORMATS, "records that cannot be used")
    about = "of photos that training did not use (default: val; without a SPLIT, all photos)"
    add("--split", "SPLIT", about, nargs="*", default=["val"])
    add = shared.add_group(parser, "confidence")
    add("--unsure-below", "X", "limit of a low confidence", default=0.25)
    add("--out", "FILE", "write the confidence there, for --calibration, not into MODEL")
    shared.add_outputs(add, json="write what was measured")
    shared.add_machine(parser, "photos at a time", 50, precision=False)

    usage, summary = "export MODEL FOLDER [options]", "write a captioner as ONNX graphs"
    parser, _ = shared.add_parser(commands, run_export, usage, summary)
    add = shared.add_group(parser, "input and output")
    add("model", "MODEL", "a model folder or name")
    add("folder", "FOLDER", "the folder to write")
    kinds = ("float32", "float16")
    about = "in which large weights are stored; all arithmetic is float32"
    add("--precision", f"{{{','.join(kinds)}}}", about, choices=kinds, default="float32")
    add("--page", "", "add a page for browsers, with onnxruntime-web, which npm fetches")
    add("--title", "TEXT", shared.TITLE_HELP)
    add("--overwrite", "", "replace files of FOLDER")

    usage, summary = "convert CHECKPOINT --out FOLDER [options]", "convert others' models"
    _, add = shared.add_parser(commands, run_convert, usage, summary)
    about = "a file of the tutorial's or of AaronCCWong's code; a model of transformers"
    add("checkpoint", "CHECKPOINT", about)
    add("--word-map", "FILE", "the words of such a file and their numbers, as JSON")
    add("--encoder", "NAME", "of a checkpoint without one: vgg19, resnet152 or a file")
    add("--out", "FOLDER", "the model folder to write", required=True)
    add("--overwrite", "", "replace files of FOLDER")

    usage, summary = "info [MODEL]", "describe a model"
    _, add = shared.add_parser(commands, run_info, usage, summary)
    add("model", "MODEL", shared.MODEL_HELP, nargs="?", default="default")


def run_calibrate(arguments: argparse.Namespace) -> int:
    """Fits a trained model's confidence: the expected share of a caption's content
    words that people use for the photo. Captions of low confidence are marked
    "not sure".

      captioner calibrate runs/flickr8k/model --format flickr8k \\
          --annotations Flickr8k.token.txt --images photos/ --split val

    The confidence is fitted to the validation photos, measured on each split by
    two-fold cross-validation, and written to the model folder. That of a model of
    transformers, and of any other with --out, goes to a file: give it back by
    --calibration FILE. It is tied to the model's weights or commit. The exit code is as
    of `evaluate`.
    """
    if not 0 <= arguments.unsure_below <= 1:
        raise UserError(f"--unsure-below {arguments.unsure_below} is not between 0 and 1")
    shared.check_data_set(arguments)
    folder = model_folder(arguments.model) if arguments.out else own_folder(arguments.model)
    if not arguments.out and (backend := ModelFolder(folder).backend):
        raise UserError(f"the confidence of a model of {backend} goes to a file: give --out FILE")
    outputs = [("--json", arguments.json), ("--out", arguments.out)]
    shared.check_outputs(outputs, arguments.overwrite)

    from captioner.caption.folder import save_confidence
    from captioner.data.example import Problems
    from captioner.data.readers import read_splits
    from captioner.devices import fast_device
    from captioner.evaluation.calibration import calibrate
    from captioner.evaluation.score import read_results
    from captioner.loading import load
    from captioner.runs.caption_scores import RESULTS

    problems = Problems(arguments.on_problem)
    annotations, splits = arguments.annotations, arguments.split or [None]
    validation = read_splits(arguments.format, annotations, arguments.images, splits, problems)
    for sentence in problems.sentences:
        report(sentence)
    by_split = dict(zip(arguments.split or ["all"], validation, strict=True))
    results = folder.parent / RESULTS  # In a run: the photos that chose the epoch.
    if folder.name == MODEL and results.is_file():
        names = {photo.name for photos in validation for photo in photos}
        if chosen := len(names & read_results(results).keys()):
            photos = f"{counted(chosen, 'photo')} of {' and '.join(by_split)}"
            advice = "its confidence may be too high; give photos that training did not use"
            report(f"{photos} chose the epoch of this model: {advice}")
    model = load(folder, fast_device(arguments.device))
    left_out = dict[str, str]() if arguments.on_problem == "skip" else None
    scores = calibrate(model, by_split, arguments.unsure_below, arguments.batch_size, left_out)
    shared.report_left_out(left_out, sum(map(len, validation)))
    assert model.confidence is not None  # Just fitted.
    save_confidence(model.confidence, folder, arguments.out)
    shared.write_scores(scores, arguments.json)
    print(f"written into {arguments.out or folder}", flush=True)
    if model.search.truth_weight:
        report("its word confidences choose other captions now (truth_weight): score them anew")
    return 2 if left_out or len(problems) else 0


def run_export(arguments: argparse.Namespace) -> None:
    """Writes a captioner as ONNX graphs, which run without torch.

      captioner export default onnx/                              float32, 38 MB
      captioner export default page/ --page                       a web page, 35 MB

    In Python: captioner.load("onnx/").caption("photo.jpg"). The page needs a
    web server for its files alone: photos stay in the browser.
    """
    if arguments.title and not arguments.page:
        raise UserError("--title needs --page")
    check_files([("FOLDER", arguments.folder)], arguments.overwrite, folders=("FOLDER",))

    folder = Path(arguments.folder)
    model = ModelFolder(model_folder(arguments.model))
    stored = f"weights in {arguments.precision}"
    if arguments.page:
        from captioner.serve.page_without_server import export_page

        stored = export_page(model, folder, arguments.precision, arguments.title)
    else:
        from captioner.caption.folder import export_model, load_model

        export_model(load_model(model.path), folder, arguments.precision)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {size / 1e6:.1f} MB, {stored}")


def run_convert(arguments: argparse.Namespace) -> None:
    """Converts a published checkpoint of Show, Attend and Tell to a model folder:
    of sgrvinod's PyTorch tutorial, or of AaronCCWong's code. Nothing of the
    checkpoint runs.

      captioner convert BEST_checkpoint_coco.pth.tar --word-map WORDMAP_coco.json --out models/coco
      captioner convert model_10.pth --word-map word_dict.json --encoder vgg19 --out models/vgg

    The encoders vgg19 and resnet152 have torchvision's weights, which are
    downloaded once. Of a model of transformers, hf://user/name or a folder with
    pytorch_model.bin alone, the weights become safetensors:

      captioner convert hf://user/name --out models/name
    """
    check_files([("--out", arguments.out)], arguments.overwrite, folders=("--out",))
    checkpoint, out = Path(arguments.checkpoint), Path(arguments.out)
    if is_address(checkpoint) or checkpoint.is_dir():
        from captioner.backends.convert import convert_pickles

        if arguments.word_map or arguments.encoder:
            advice = "leave out --word-map and --encoder, which are of checkpoints"
            raise UserError(f"{arguments.checkpoint} has its own words and encoder: {advice}")
        convert_pickles(arguments.checkpoint, out)
        print(f"{out}: with safetensors, of {arguments.checkpoint}")
        return
    if arguments.word_map is None:
        raise UserError(f"checkpoint {checkpoint} needs its words: give --word-map FILE")

    import torch

    from captioner.backends.convert import read_published
    from captioner.caption.captioner import Captioner
    from captioner.caption.folder import save_model

    words = Path(arguments.word_map)
    networks, search, code = read_published(checkpoint, words, arguments.encoder)
    card = f"# {out.name}\n\nConverted from {checkpoint.name}, of {code}.\n"
    save_model(Captioner(networks, search, card=card), out, torch.float32)
    print(f"{out}: {networks}, of {code}")


def run_info(arguments: argparse.Namespace) -> None:
    """Describes a captioner or translator: its parts, its size, its model card.

      captioner info                 the packaged captioner
      captioner info vgg             the one with the paper's kind of encoder
      captioner info english_german  the packaged translator into German
      captioner info hf://user/name  a model of the hub, with its revision

    A packaged model wins over a folder of its name; ./default is the folder.
    """
    name = pinned(arguments.model)
    description = _description(ModelFolder(model_folder(name)))
    print(f"revision       {name}\n{description}" if is_address(name) else description)


def _description(folder: ModelFolder) -> str:
    from captioner.loading import ENGINES, load, load_translator
    from captioner.models.score_config import scores

    if folder.kind == "translator":
        translator = load_translator(folder.path)
        sizes = {"source": translator.source, "target": translator.target}
        return described(folder, {name: f"{len(part):,} tokens" for name, part in sizes.items()})
    words = load(folder.path).backend.vocabulary_size
    backends = ", ".join([*ENGINES["captioner"], *other_backends()])
    known = {"backends": backends, "scores": ", ".join(scores())}
    return described(folder, {"vocabulary": f"{words:,} words", **known})


def described(folder: ModelFolder, given: Mapping[str, object]) -> str:
    """A model as text: these facts, config with counts of weights, gist of its card."""
    config = {name: value for name, value in folder.config.items() if name != "files"}
    digests = f"{len(folder.digests)}, checked by their digests"
    counts: Counter[str] = Counter()
    if folder.has_weights:
        for name, tensor in weights_header(folder.files / WEIGHTS)[1].items():
            counts[name.partition(".")[0]] += prod(tensor.shape)
    weights = [folder.files / name for name in (WEIGHTS, *GRAPHS)]
    size = sum(path.stat().st_size for path in weights if path.is_file())
    parts = {name: part for name, part in config.items() if isinstance(part, dict)}
    plain = {name.replace("_", " "): config[name] for name in config if name not in parts}
    own = {"model folder": folder.path, "weights": f"{size / 1e6:.1f} MB", "files": digests}
    facts = {**own, **given, **plain}
    width = max(15, 2 + max(map(len, facts)))
    lines = [f"{name:<{width}}{fact}" for name, fact in facts.items()]
    for name, part in parts.items():
        count = f"{counts[name]:,} weights" if counts[name] else ""
        lines += ["", f"{name:<15}{count}".rstrip()]
        fields = flat({field: value for field, value in part.items() if value is not None})
        shown = [field for field in fields if ".offsets." not in field]  # One for each word.
        lines += [f"  {field}: {fields[field]}" for field in shown]
    card = CONTROLS.sub("", folder.card)
    text = re.sub(r"\A---\n.*?\n---\n", "", card, flags=re.DOTALL).lstrip()  # Fields for hubs.
    start, section, _ = text.partition("\n## ")
    if card:
        lines += ["", start.rstrip()]
    if section:
        lines += ["", f"(the whole card: {folder.path / CARD})"]
    return "\n".join(lines)
