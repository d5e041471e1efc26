"""Finds model folders by name, path or address, saves them, reads config and card."""

import hashlib
import json
import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from math import prod
from pathlib import Path, PurePath
from typing import Any

from captioner.errors import CONTROLS, UserError, did_you_mean, near_names, refuse_missing
from captioner.files import (
    LARGEST_CONFIG,
    atomic_path,
    flush_folder,
    read_json,
    read_text,
    refuse_os_errors,
    remove_temporaries,
    temporary_path,
)
from captioner.schema import flat

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
VOCABULARY = "vocabulary.json"  # A captioner's, or a translator's for both sides.
GRAPHS = ("encoder.onnx", "start.onnx", "step.onnx")
NGRAMS = "ngrams.bin"  # Beside exported graphs: `Constraints.ngrams`, little-endian int64.
FILES = (WEIGHTS, CONFIG, VOCABULARY, "source.json", "target.json", CARD, *GRAPHS, NGRAMS)
"""No other file is downloaded."""

MODEL = "model"  # In a run's folder: the folder of the best model.
SCORES_FILE = "scores.json"  # In the folder of the best model: its validation scores.

FORMATS = {"captioner": "captioner caption model 1", "translator": "captioner translation model 1"}
"""The field `format` of the config of each kind of model."""

DEMO_PHOTO = Path(__file__).with_name("demo.jpg")
"""Chelsea the cat, by Stefan van der Walt (CC0): a piece of the photo that scikit-image has."""

_PACKAGED = Path(__file__).with_name("models")
_SAVED = ".saved"
_NAME = r"\w[\w.-]*/\w[\w.-]*"
_ADDRESS = re.compile(rf"hf:/+({_NAME})(?:@((?!.*\.\.)\w[\w./-]*))?", re.ASCII)


@contextmanager
def saving(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder for a model's files, which then replace `folder`'s.

    At any moment `complete_folder` finds the old files or the new ones, whole: the temporary
    folder becomes `.saved` in one step, and is removed when its files are copied.
    """
    saved = folder / _SAVED
    temporary = temporary_path(folder)
    with refuse_os_errors(f"cannot write model folder {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        remove_temporaries(folder)
        if saved.is_dir():
            _replace_by(saved)
        temporary.mkdir()
        try:
            yield temporary
            os.rename(temporary, saved)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        flush_folder(folder)
        _replace_by(saved)


def complete_folder(folder: str | Path) -> Path:
    """The folder with the files of a model: `folder`, or `.saved` in it if saving was stopped."""
    saved = Path(folder) / _SAVED
    return saved if os.path.isdir(saved) else Path(folder)


def _replace_by(saved: Path) -> None:
    for name in GRAPHS:
        if not (saved / name).exists():  # They are of the model before.
            (saved.parent / name).unlink(missing_ok=True)
    for file in saved.iterdir():
        with atomic_path(saved.parent / file.name) as temporary:
            shutil.copyfile(file, temporary)
    copied = temporary_path(saved.parent)
    os.rename(saved, copied)
    flush_folder(saved.parent)
    shutil.rmtree(copied, ignore_errors=True)


def packaged_models() -> list[str]:
    """The names of the packaged models."""
    return sorted(path.parent.name for path in _PACKAGED.glob(f"*/{CONFIG}"))


def model_folder(name_or_path: str | os.PathLike[str] = "default") -> Path:
    """The folder of a packaged model, by name, or of another, by its path or that of its run.

    A name wins over a path; write `./default` for a folder of that name. A model on the hub, by
    `hf://user/name` or `hf://user/name@revision` (a branch, tag or commit), is downloaded once.
    """
    packaged = packaged_models()
    if str(name_or_path) in packaged:
        return _PACKAGED / str(name_or_path)
    if is_address(name_or_path):
        return _fetch(name_or_path)
    path = Path(os.path.expanduser(name_or_path))
    if not os.path.isdir(path):  # Unlike `Path.is_dir`, False for names too long.
        raise UserError(
            f"model {str(name_or_path)!r} is neither a folder nor one of the packaged models "
            f"({', '.join(packaged)}){did_you_mean(near_names(path, packaged))}"
        )
    has_model = os.path.isfile(complete_folder(path / MODEL) / CONFIG)
    is_run = has_model and not os.path.isfile(path / WEIGHTS)
    return path / MODEL if is_run else path


def kind_of(folder: Path) -> str | None:
    """Which of `FORMATS` a folder holds a model of; None for another folder."""
    path = complete_folder(folder) / CONFIG
    mapping = read_json(path, "model config", LARGEST_CONFIG) if os.path.isfile(path) else None
    named = mapping.get("format") if isinstance(mapping, dict) else None
    return next((kind for kind, format in FORMATS.items() if format == named), None)


def read_model_config(folder: Path, kind: str) -> Any:
    """Read the config of a model folder as JSON. kind: the expected one of `FORMATS`."""
    path = folder / CONFIG
    mapping = read_json(path, "model config", LARGEST_CONFIG)
    actual_kind = kind_of(folder)
    if actual_kind is None:
        raise UserError(f"{path} is not the config of a {kind}: no format {FORMATS[kind]!r}")
    if actual_kind != kind:
        raise UserError(f"{folder} is a {actual_kind}, not a {kind}")
    return mapping


def has_graphs(folder: Path) -> bool:
    """Whether a model folder holds graphs, and they are of its weights."""
    folder = complete_folder(folder)
    names = GRAPHS[1:] if kind_of(folder) == "translator" else GRAPHS
    graphs = [folder / name for name in names]
    if not all(map(os.path.isfile, graphs)):
        return False
    weights = folder / WEIGHTS
    if not os.path.isfile(weights):
        return True  # They hold their own, if any.
    digest = weights_header(weights)[0].get("__metadata__", {}).get("sha256")
    return digest is not None and all(digest.encode() in path.read_bytes() for path in graphs)


def weights_header(path: Path) -> tuple[Any, int]:
    """The header of a safetensors file, {} of another, and where its tensors begin."""
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            return json.loads(file.read(min(size, LARGEST_CONFIG))), 8 + size
    except (OSError, ValueError):
        return {}, 0


def weights_digest(folder: Path) -> str:
    """SHA-256 of a model's weights, as their header names it, or else of the files that hold them.

    Graphs and torch have the same.
    """
    folder = complete_folder(folder)
    if named := weights_header(folder / WEIGHTS)[0].get("__metadata__", {}).get("sha256"):
        return str(named)
    paths = [folder / name for name in (WEIGHTS, *GRAPHS) if os.path.isfile(folder / name)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def read_card(folder: Path) -> str:
    """Read the model card; "" if there is none."""
    path = folder / CARD
    return read_text(path, "model card", LARGEST_CONFIG) if os.path.isfile(path) else ""


def described(folder: Path, facts: Mapping[str, object]) -> str:
    """A folder's model as text: facts, config with counts of weights, gist of its card."""
    complete = complete_folder(folder)
    config = read_json(complete / CONFIG, "model config", LARGEST_CONFIG)
    counts: Counter[str] = Counter()
    for name, tensor in weights_header(complete / WEIGHTS)[0].items():
        counts[name.partition(".")[0]] += prod(tensor.get("shape", [0]))
    weights = [complete / name for name in (WEIGHTS, *GRAPHS)]
    size = sum(path.stat().st_size for path in weights if path.is_file())
    parts = {name: part for name, part in config.items() if isinstance(part, dict)}
    facts = {"model folder": folder, "weights": f"{size / 1e6:.1f} MB", **facts}
    facts |= {name.replace("_", " "): config[name] for name in config if name not in parts}
    width = max(15, 2 + max(map(len, facts)))
    lines = [f"{name:<{width}}{fact}" for name, fact in facts.items()]
    for name, part in parts.items():
        count = f"{counts[name]:,} weights" if counts[name] else ""
        lines += ["", f"{name:<15}{count}".rstrip()]
        fields = flat({field: value for field, value in part.items() if value is not None})
        shown = [field for field in fields if ".offsets." not in field]  # One for each word.
        lines += [f"  {field}: {fields[field]}" for field in shown]
    card = CONTROLS.sub("", read_card(complete))
    text = re.sub(r"\A---\n.*?\n---\n", "", card, flags=re.DOTALL).lstrip()  # Fields for hubs.
    start, section, _ = text.partition("\n## ")
    if card:
        lines += ["", start.rstrip()]
    if section:
        lines += ["", f"(the whole card: {folder / CARD})"]
    return "\n".join(lines)


def is_address(name: str | os.PathLike[str]) -> bool:
    """Whether a model's name is an address, also as a `Path`, which drops a slash."""
    return PurePath(name).as_posix().startswith("hf:/")


def _parse(name: str | os.PathLike[str]) -> tuple[str, str, str | None]:
    """An address, its repository and its revision; None for the newest commit."""
    path = PurePath(name).as_posix()
    match = _ADDRESS.fullmatch(path)
    if match is None:
        raise UserError(f"{name} is not of the form hf://user/name or hf://user/name@revision")
    return path.replace(":/", "://", 1), match[1], match[2]


def _fetch(name: str | os.PathLike[str]) -> Path:
    """The cached folder of a model, named by its commit; downloads what is not cached."""
    address, repository, revision = _parse(name)
    with _explained(address):
        from huggingface_hub import snapshot_download

        # First, so that a repository of another kind is refused before its weights.
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=CONFIG))
        if kind_of(folder) is None:
            raise UserError(f"{address} is no captioner or translator: it has no {CONFIG} of one")
    with _explained(address):
        snapshot_download(repository, revision=folder.name, allow_patterns=list(FILES))
    return folder


def pinned(name: str) -> str:
    """The name of a model; an address with its commit."""
    if not is_address(name):
        return name
    return f"hf://{_parse(name)[1]}@{_fetch(name).name}"


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Makes one sentence of huggingface_hub's errors; shows no warnings and no bars."""
    with refuse_missing(f"{address} needs huggingface_hub", "hub"):
        utils = import_module("huggingface_hub.utils")
    verbosity = utils.logging.get_verbosity()
    utils.logging.set_verbosity(logging.ERROR)
    are_shown = not utils.are_progress_bars_disabled()
    utils.disable_progress_bars()
    try:
        yield
        return
    except UserError:
        raise
    except Exception as error:  # requests' or httpx's, which share no class.
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = f"cannot be had: {error or type(error).__name__}"
        if status in (401, 403, 404):
            reason = "does not exist or is not yours to use; log in by hf auth login or HF_TOKEN"
    finally:
        utils.logging.set_verbosity(verbosity)
        if are_shown:
            utils.enable_progress_bars()
    raise UserError(f"{address} {' '.join(reason.split())}") from None
