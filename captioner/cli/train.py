"""`captioner train`, `captioner runs` and `captioner features`."""

import argparse
import json
import os
from pathlib import Path

from captioner.cli import shared_options as shared
from captioner.cli.program import report
from captioner.errors import is_of_interrupt, reason_of
from captioner.files import write_text


def add_commands(commands: shared.Commands) -> None:
    """Add the three commands to the command line."""
    usage, summary = "train CONFIG [options]", "train a captioner or a translator"
    parser, add = shared.add_parser(commands, run, usage, summary)
    _add_config(add, "a YAML file; or photos and captions: a table, a folder, shards, JSON")
    about = "initial weights, words and sizes: a packaged model or a folder"
    add("--start-from", "MODEL", about, **_changing("start_from"))
    about = "an encoder with published weights: vgg11 to vgg19, vgg11_bn to vgg19_bn, timm/NAME or "
    add("--encoder", "NAME", f"{about}torchvision/NAME; its stored annotation vectors lie in OUT")
    add = shared.add_group(parser, "output")
    add("--out", "FOLDER", "the run's folder (default: runs/ and the config's name)")
    add("--resume", "", "continue the run in the folder")
    shared.add_machine(parser)

    usage, summary = "runs FOLDER [FOLDER ...] [options]", "compare training runs"
    parser, add = shared.add_parser(commands, run_runs, usage, summary)
    add("paths", "FOLDER", "a run, or a folder of runs", nargs="+")
    add("--against", "RUN", "compare each with this run, by the paired bootstrap")
    add = shared.add_group(parser, "output")
    shared.add_outputs(add, "write the table", "write the table, each interval as two columns")
    add("--latex", "FILE", "write the table for LaTeX, with booktabs")

    usage, summary = "features CONFIG [options]", "store the annotation vectors of photos"
    parser, add = shared.add_parser(commands, run_features, usage, summary)
    _add_config(add, "a YAML file, as for training; or a folder of photos, without captions")
    add = shared.add_group(parser, "output")
    about = "the store's folder (default: the config's features.folder, or features)"
    add("--out", "FOLDER", about, **_changing("features.folder"))
    shared.add_machine(parser)


def _add_config(add: shared.Add, about: str) -> None:
    add("config", "CONFIG", about)
    add("--set", "SECTION.FIELD=VALUE", "override a field; may be repeated", **_changing())


def _changing(field: str = "") -> dict[str, object]:
    """argparse's words for an option that changes a field of the config, or those it names."""

    def change(text: str) -> str:  # Quoted: a folder named 2024 is no number.
        return f"{field}={json.dumps(text, ensure_ascii=False)}" if field else text

    return {"dest": "changes", "action": "append", "default": [], "type": change}


def run(arguments: argparse.Namespace) -> None:
    """Trains the captioner of a config or, with `task: translate`, the translator.

    docs/configuration.md documents every field. Photos and captions adapt a model to them: a table,
    a folder of photos with texts (photo.txt), metadata.jsonl or descriptions, or a file of COCO or
    Karpathy.

      captioner train mine.csv --start-from default --out runs/mine
      captioner train configs/shapes_soft.yaml --out runs/shapes
      captioner train configs/flickr8k_soft.yaml --out runs/flickr8k \\
          --set data.images=Flicker8k_Dataset
      captioner train configs/flickr8k_soft.yaml --out runs/flickr8k --resume

    Ctrl-C and SIGTERM save a checkpoint first; --resume continues bit for bit. OUT/model always
    holds the best model so far, by validation on generated captions.

    On several GPUs, each process takes one and its share of every batch; several machines also need
    torchrun's --nnodes, --node-rank and --master-addr, and an OUT on a disk that they share:

      torchrun --nproc-per-node 8 -m captioner train configs/coco_soft.yaml --out runs/coco
    """
    from captioner.backends.export import add_graphs
    from captioner.devices import choose_device
    from captioner.runs.changes import encoder_changes
    from captioner.runs.read_recipe import read_any_recipe
    from captioner.runs.run import train_run
    from captioner.training.distributed import process_rank

    changes = arguments.changes
    if arguments.encoder is not None:
        changes = [*encoder_changes(arguments.config, arguments.encoder), *changes]
    recipe = read_any_recipe(arguments.config, changes)
    folder = Path(arguments.out or Path("runs") / Path(arguments.config).resolve().stem)
    model = train_run(recipe, folder, arguments.resume, choose_device(arguments.device))
    if process_rank() == 0:
        print(f"writing graphs beside {model}, with which it needs no torch", flush=True)
        try:
            add_graphs(model)
        except Exception as error:  # Exporters raise many kinds; the model works without.
            if is_of_interrupt(error):
                raise
            report(f"{model} needs torch: {reason_of(error)}")


def run_runs(arguments: argparse.Namespace) -> int:
    """Compares training runs: the fields of their configs that differ, the best epoch, its
    scores on the validation photos with intervals, and minutes.

      captioner runs runs/
      captioner runs runs/ --against runs/shapes --latex table.tex

    The exit code is 2 if a folder has no run, or a run could not be read.
    """
    files = [(f"--{name}", getattr(arguments, name)) for name in ("json", "csv", "latex")]
    shared.check_outputs(files, arguments.overwrite)

    from captioner.runs.compare_runs import compare_runs

    runs = compare_runs(arguments.paths, arguments.against)
    for sentence in runs.problems:
        report(sentence)
    shared.write_scores(runs, arguments.json, arguments.csv)
    if arguments.latex:
        write_text(arguments.latex, runs.latex())
    return 2 if runs.problems else 0


def run_features(arguments: argparse.Namespace) -> int:
    """Stores the annotation vectors of a config's photos: 200,704 bytes a photo of 224x224.

    Training does so by itself; do it beforehand to share a store among runs. A stopped extraction
    continues. Run one command a store; with torchrun each process takes a share of the photos.

      captioner features configs/flickr8k_soft.yaml --out features
      captioner train configs/flickr8k_soft.yaml --set features.folder=features

    Of a folder of photos, stores vectors by the packaged model's encoder, or that of
    --set start_from=MODEL. NumPy reads them: rows.npy (N, 196, 512) in float16, of the
    images of record.json; NaN of a photo that --set data.on_problem=skip leaves out.

      captioner features photos/ --out vectors         the store vectors/photos/

    The exit code is 2 if a photo could not be read.
    """
    from captioner.devices import choose_device
    from captioner.runs.features import extract_features
    from captioner.runs.read_recipe import read_any_recipe
    from captioner.training.distributed import Processes

    config, changes, photos = arguments.config, arguments.changes, None
    if os.path.isdir(config):
        photos, changes = config, ["features.folder=features", *changes]
    with Processes(choose_device(arguments.device)) as processes:
        stores = extract_features(read_any_recipe(config, changes), processes, photos)
    return 2 if any(store.unreadable for store in stores.values()) else 0
