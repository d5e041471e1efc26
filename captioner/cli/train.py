"""`captioner train` and `captioner features`."""

import argparse
import json
from pathlib import Path
from typing import Any

from captioner.cli import shared_options as shared
from captioner.cli.program import report
from captioner.errors import UserError

DESCRIPTION = """\
Trains the captioner of a config or, with `task: translate`, the translator. docs/configuration.md
documents every field. Photos and captions adapt a model to them: a table, a folder of photos
with texts (photo.txt), metadata.jsonl or descriptions, or a file of COCO or Karpathy.

  captioner train mine.csv --start-from default --out runs/mine
  captioner train configs/shapes_soft.yaml --out runs/shapes
  captioner train configs/flickr8k_soft.yaml --out runs/flickr8k --set data.images=Flicker8k_Dataset
  captioner train configs/flickr8k_soft.yaml --out runs/flickr8k --resume

Ctrl-C and SIGTERM save a checkpoint first; --resume continues bit for bit. OUT/model always holds
the best model so far, by validation on generated captions.

On several GPUs, each process takes one and its share of every batch; several machines also need
torchrun's --nnodes, --node-rank and --master-addr, and an OUT on a disk that they share:

  torchrun --nproc-per-node 8 -m captioner train configs/coco_soft.yaml --out runs/coco
"""

FEATURES_DESCRIPTION = """\
Stores the annotation vectors of a config's photos: 200,704 bytes a photo of 224x224. Training does
so by itself; do it beforehand to share a store among runs. A stopped extraction continues. Run one
command a store; with torchrun each process takes a share of the photos.

  captioner features configs/flickr8k_soft.yaml --out features
  captioner train configs/flickr8k_soft.yaml --set features.folder=features
"""


def add_commands(commands: shared.Commands) -> None:
    """Add both commands to the command line."""
    usage, summary = "train CONFIG [options]", "train a captioner or a translator"
    parser, add = shared.add_parser(commands, run, usage, summary, DESCRIPTION)
    _add_config(add, "a YAML file; or photos and captions: a table, a folder, shards, JSON")
    add("--start-from", "MODEL", "initial weights, words and sizes: a packaged model or a folder")
    about = "an encoder with published weights: vgg11 to vgg19, vgg11_bn to vgg19_bn, timm/NAME or "
    add("--encoder", "NAME", f"{about}torchvision/NAME; its stored annotation vectors lie in OUT")
    add = shared.add_group(parser, "output")
    add("--out", "FOLDER", "the run's folder (default: runs/ and the config's name)")
    add("--resume", "", "continue the run in the folder")
    shared.add_machine(parser)

    usage, summary = "features CONFIG [options]", "store the annotation vectors of photos"
    parser, add = shared.add_parser(commands, run_features, usage, summary, FEATURES_DESCRIPTION)
    _add_config(add, "a YAML file, as for training")
    add = shared.add_group(parser, "output")
    add("--out", "FOLDER", "the store's folder (default: the config's features.folder)")
    shared.add_machine(parser)


def _add_config(add: shared.Add, about: str) -> None:
    add("config", "CONFIG", about)
    about = "override a field of the config; may be repeated"
    more: dict[str, Any] = {"dest": "changes", "action": "append", "default": []}
    add("--set", "SECTION.FIELD=VALUE", about, **more)


def run(arguments: argparse.Namespace) -> None:
    """Train."""
    from captioner.data.readers import format_of
    from captioner.devices import choose_device
    from captioner.runs.read_recipe import read_any_recipe
    from captioner.runs.run import train_run
    from captioner.training.distributed import process_rank

    changes = arguments.changes
    if arguments.start_from is not None:
        changes = [_change("start_from", arguments.start_from), *changes]
    if arguments.encoder is not None:
        if format_of(Path(arguments.config)) is not None:
            raise UserError("--encoder is for configs; photos take the encoder of --start-from")
        # Sizes and stored annotation vectors of the config belong to the encoder it names.
        changes = [_encoder_change(arguments), "features.folder=null", *changes]
    recipe = read_any_recipe(arguments.config, changes)
    folder = Path(arguments.out or Path("runs") / Path(arguments.config).resolve().stem)
    model = train_run(recipe, folder, arguments.resume, choose_device(arguments.device))
    if process_rank() == 0:
        write_graphs(model)


def write_graphs(folder: Path) -> None:
    """Write graphs beside a trained model, with which it needs no torch, if it can."""
    from captioner.onnx.export import add_graphs

    print(f"writing graphs beside {folder}, with which it needs no torch", flush=True)
    try:
        add_graphs(folder)
    except Exception as error:  # Exporters raise many kinds; the model works without.
        reason = (str(error) or repr(error)).splitlines()[0]
        report(f"{folder} needs torch: {reason}")


def run_features(arguments: argparse.Namespace) -> None:
    """Fill the stores."""
    from captioner.devices import choose_device
    from captioner.runs.features import extract_features
    from captioner.runs.read_recipe import read_recipe
    from captioner.training.distributed import Processes

    changes = list(arguments.changes)
    if arguments.out is not None:
        changes.append(_change("features.folder", arguments.out))
    recipe = read_recipe(arguments.config, changes)
    with Processes(choose_device(arguments.device)) as processes:
        extract_features(recipe, processes)


def _change(field: str, value: object) -> str:
    """A change of the config; quoted, so that a folder named 2024 is not read as a number."""
    return f"{field}={json.dumps(value, ensure_ascii=False, default=str)}"


def _encoder_change(arguments: argparse.Namespace) -> str:
    """Replaces the config's encoder; fields that every family has keep their values."""
    from captioner.runs.captioning_recipe import EncoderRecipe
    from captioner.runs.read_recipe import read_mapping

    mapping = read_mapping(arguments.config)
    old = mapping.get("encoder") if isinstance(mapping, dict) else None
    fields = old.items() if isinstance(old, dict) else ()
    recipe_fields = EncoderRecipe.model_fields.keys() - {"digest"}  # It is of the old weights.
    kept = {name: value for name, value in fields if name in recipe_fields}
    return _change("encoder", {**kept, "name": arguments.encoder, "weights": "pretrained"})
