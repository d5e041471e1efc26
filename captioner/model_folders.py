"""Finds model folders by name, path or address, and reads their config once."""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path, PurePath
from typing import Any

from captioner.errors import (
    GraphError,
    UserError,
    did_you_mean,
    near_names,
    reason_of,
    refuse_missing,
)
from captioner.files import (
    LARGEST_CONFIG,
    JsonObject,
    check_writable,
    read_bytes,
    read_json,
    read_text,
    refuse_os_errors,
)
from captioner.foreign_models import (
    ADAPTER,
    COPIED,
    PICKLES,
    SAFETENSORS,
    TRANSFORMERS,
    check_family,
    check_weights,
)
from captioner.schema import Instance, from_mapping
from captioner.weight_files import stored_tensors, weights_header

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
VOCABULARY = "vocabulary.json"  # A captioner's, or a translator's for both sides.
SOURCE, TARGET = "source.json", "target.json"  # The vocabularies of a translator's sides.
VOCABULARIES = (VOCABULARY, SOURCE, TARGET)
GRAPHS = ("encoder.onnx", "start.onnx", "step.onnx")
FILES = (WEIGHTS, CONFIG, *VOCABULARIES, CARD, *GRAPHS)
"""No other file is downloaded."""

_BACKENDS = "captioner.backends"
"""Of entry points: `name = "module:function"`, for folders whose config has `backend: name`."""

MODEL = "model"  # In a run's folder: the folder of the best model.
SCORES_FILE = "scores.json"  # In the folder of the best model: its validation scores.

FORMATS = {"captioner": "captioner caption model 1", "translator": "captioner translation model 1"}
"""The field `format` of the config of each kind of model."""

DEMO_PHOTO = Path(__file__).with_name("demo.jpg")
"""Chelsea the cat, by Stefan van der Walt (CC0): a piece of the photo that scikit-image has."""

_PACKAGED = Path(__file__).with_name("packaged")
SAVED = ".saved"
_ADDRESS = re.compile(r"hf:/+(\w[\w.-]*/\w[\w.-]*)(?:@((?!.*\.\.)\w[\w./-]*))?", re.ASCII)


def complete_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder with the files of a model: `folder`, or `.saved` in it if saving was stopped."""
    saved = Path(folder) / SAVED
    return saved if os.path.isdir(saved) else Path(folder)


def file_digest(path: Path, content: bytes | None = None) -> str:
    """SHA-256 of a file; of weights that in their header, which other headers share."""
    if path.name == WEIGHTS:
        return weights_header(path)[0]
    return hashlib.sha256(content or read_bytes(path, "model file")).hexdigest()


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
    if path.suffix in (".tar", ".pth", ".pt") and os.path.isfile(path):
        advice = f"captioner convert {path} --word-map FILE --out FOLDER makes one"
        raise UserError(f"{path} is a checkpoint, not a model folder; {advice}")
    if not os.path.isdir(path):  # Unlike `Path.is_dir`, False for names too long.
        raise UserError(
            f"model {str(name_or_path)!r} is neither a folder nor one of the packaged models "
            f"({', '.join(packaged)}){did_you_mean(near_names(path, packaged))}"
        )
    has_model = os.path.isfile(complete_folder(path / MODEL) / CONFIG)
    is_run = has_model and not os.path.isfile(path / WEIGHTS)
    return path / MODEL if is_run else path


def own_folder(name: str) -> Path:
    """A model's folder that may be written to; refuses packaged and downloaded ones."""
    folder = model_folder(name)
    if name in packaged_models() or is_address(name):
        raise UserError(f"{name} is packaged or on the hub; give --out FILE, or a copy of {folder}")
    check_writable("MODEL", folder)
    return folder


class ModelFolder:
    """A folder with a model, whose config is read once.

    path: of the folder. files: the folder of its files, `.saved` in it if saving was stopped.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.files = complete_folder(os.path.abspath(path))  # The working folder may change.

    @cached_property
    def config(self) -> JsonObject:
        """The fields of the config; none of a folder without one."""
        path = self.files / CONFIG
        if not os.path.lexists(path):
            return {}
        mapping = read_json(path, "model config", LARGEST_CONFIG)
        return mapping if isinstance(mapping, dict) else {}

    @property
    def kind(self) -> str | None:
        """Which of `FORMATS` it holds a model of; None of another folder."""
        written = self.config.get("format")
        return next((kind for kind, format in FORMATS.items() if format == written), None)

    @property
    def backend(self) -> str | None:
        """What computes it, where it is of none of `FORMATS`: `TRANSFORMERS`, or as it names it."""
        if self.kind is not None:
            return None
        if isinstance(name := self.config.get("backend"), str):
            return name
        is_foreign = (
            isinstance(self.config.get("model_type"), str) or (self.files / ADAPTER).is_file()
        )
        return TRANSFORMERS if is_foreign else None

    @property
    def has_graphs(self) -> bool:
        """Whether it holds graphs; `captioner.backends.graphs` checks them."""
        names = GRAPHS[1:] if self.kind == "translator" else GRAPHS
        return all(os.path.isfile(self.files / name) for name in names)

    @property
    def has_weights(self) -> bool:
        """Whether it holds weights, besides those in graphs."""
        return os.path.isfile(self.files / WEIGHTS)

    def tensors(self) -> dict[str, Any]:
        """The weights of its file, as arrays of NumPy; none of a folder whose graphs hold them."""
        return stored_tensors(self.files / WEIGHTS, "np") if self.has_weights else {}

    def check_kind(self, kind: str) -> None:
        """Refuse a folder whose config is not of this kind, one of `FORMATS`."""
        path = self.files / CONFIG
        if self.backend is not None:
            what = f"is computed by the backend {self.backend!r}"
            raise UserError(f"{self.path} {what}: it has no networks to train or export")
        if self.kind is None:
            read_json(path, "model config", LARGEST_CONFIG)  # Refuses a missing file.
            raise UserError(f"{path} is not the config of a {kind}: no format {FORMATS[kind]!r}")
        if self.kind != kind:
            raise UserError(f"{self.files} is a {self.kind}, not a {kind}")

    def read(self, kind: str, config: type[Instance]) -> Instance:
        """Validate the config. kind: the expected one of `FORMATS`."""
        self.check_kind(kind)
        return from_mapping(config, self.config, str(self.files / CONFIG))

    @property
    def digests(self) -> Mapping[str, str]:
        """The digests of its files, from the config; 0.3.0 wrote none."""
        digests: Mapping[str, str] = self.config.get("files", {})
        return digests

    def check(self, graphs: Mapping[str, bytes] | None = None) -> None:
        """Refuse vocabularies and graphs if their digest is not the config's.

        graphs: the contents of their files, all of which the config lists.
        """
        given = graphs or {}
        listed = [name for name in VOCABULARIES if name in self.digests]
        for name in (*given, *listed):
            if self.digests.get(name) != file_digest(self.files / name, given.get(name)):
                problem = f"is damaged, or of another model than {CONFIG} (its digest is another)"
                error = GraphError if name in GRAPHS else UserError
                raise error(f"{self.files / name} {problem}; load, copy or export the model again")

    @property
    def digest(self) -> str:
        """SHA-256 of the weights, as their header names it, or else of the files that hold them.

        Graphs and torch have the same.
        """
        if self.has_weights and (named := weights_header(self.files / WEIGHTS)[0]):
            return named
        if self.backend and self.files.parent.name == "snapshots":  # Of the hub's cache.
            return self.files.name  # The commit.
        names = (WEIGHTS, *GRAPHS) if self.kind else sorted(os.listdir(self.files))
        digest = hashlib.sha256()
        for path in (self.files / name for name in names):
            if path.is_file():
                with refuse_os_errors(f"cannot read {path}"), path.open("rb") as file:
                    for block in iter(partial(file.read, 2**20), b""):
                        digest.update(block)
        return digest.hexdigest()

    @property
    def card(self) -> str:
        """The model card; "" if there is none."""
        path = self.files / CARD
        return read_text(path, "model card", LARGEST_CONFIG) if os.path.isfile(path) else ""


def other_backends() -> dict[str, EntryPoint]:
    """The backends that other packages bring, by name."""
    return {point.name: point for point in entry_points(group=_BACKENDS)}


def other_backend(name: str, model: str) -> EntryPoint:
    """The backend of another package, which a model needs; refuses one that is not installed."""
    found = other_backends()
    if name not in found:
        needs = f"needs the backend {name!r} of another package"
        raise UserError(f"{model} {needs}; installed are: {', '.join(sorted(found)) or 'none'}")
    return found[name]


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


def _fetch(name: str | os.PathLike[str], weights: Sequence[str] = SAFETENSORS) -> Path:
    """The cached folder of a model, named by its commit; downloads what is not cached.

    weights: the files of them of a captioner of transformers.
    """
    address, repository, revision = _parse(name)
    with _explained(address):
        from huggingface_hub import snapshot_download

        # First, so that a repository of another kind is refused before its weights.
        first = [CONFIG, ADAPTER]
        folder = Path(snapshot_download(repository, revision=revision, allow_patterns=first))
        model = ModelFolder(folder)
        names: list[str] | None = list(FILES)
        if model.backend == TRANSFORMERS:
            check_family(model.config, folder, address)
            names = [CONFIG, CARD, *COPIED, *weights]
        elif model.backend is not None:
            other_backend(model.backend, address)
            names = None  # All: it alone knows which it reads.
        elif model.kind is None:
            raise UserError(f"{address} is no captioner or translator: it has no {CONFIG} of one")
        snapshot_download(repository, revision=folder.name, allow_patterns=names)
        if model.backend == TRANSFORMERS and weights == SAFETENSORS:
            check_weights(model.config, folder, address)
    return folder


def pickled_folder(name: str) -> ModelFolder:
    """A captioner of transformers with pickled weights, by its address or path."""
    folder = ModelFolder(_fetch(name, PICKLES) if is_address(name) else Path(name))
    check_family(folder.config, folder.files, name)
    return folder


def pinned(name: str) -> str:
    """The name of a model; an address with its commit."""
    if not is_address(name):
        return name
    return f"hf://{_parse(name)[1]}@{_fetch(name).name}"


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Makes one sentence of huggingface_hub's errors; turns its warnings and bars off."""
    with refuse_missing(f"{address} needs huggingface_hub", "hub"):
        utils = import_module("huggingface_hub.utils")
    utils.logging.set_verbosity_error()
    utils.disable_progress_bars()
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # requests' or httpx's, which share no class.
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = f"cannot be had: {reason_of(error)}"
        if status in (401, 403, 404):
            reason = "does not exist or is not yours to use; log in by hf auth login or HF_TOKEN"
        raise UserError(f"{address} {reason}") from None
