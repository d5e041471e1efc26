"""Finds model folders by name or path, and reads the files common to all: config and card."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from captioner.errors import UserError, did_you_mean, near_names
from captioner.files import (
    atomic_path,
    flush_folder,
    read_json,
    read_text,
    refuse_os_errors,
    remove_temporaries,
    temporary_path,
)

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"
MODEL = "model"  # In a run's folder: the folder of the best model.
SCORES_FILE = "scores.json"  # In the folder of the best model: its validation scores.

FORMATS = {
    "captioner": "captioner caption model 1",
    "translator": "captioner translation model 1",
}
"""The field `format` of the config of each kind of model."""

_PACKAGED = Path(__file__).parent / "models"
_SAVED = ".saved"


@contextlib.contextmanager
def saving(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder for all files of a model, which then replace those of `folder`.

    At any moment `complete_folder` finds the old files or the new ones, whole: the temporary
    folder becomes `.saved` in one step, and is removed when its files are copied.
    """
    saved, temporary = folder / _SAVED, temporary_path(folder)
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
    return saved if saved.is_dir() else Path(folder)


def _replace_by(saved: Path) -> None:
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
    `hf://user/name` or `hf://user/name@revision`, is downloaded unless it is cached.
    """
    from captioner import hub  # Which imports this module.

    packaged = packaged_models()
    if str(name_or_path) in packaged:
        return _PACKAGED / str(name_or_path)
    if hub.is_address(name_or_path):
        return hub.fetch_model(name_or_path)
    path = Path(name_or_path)
    if not os.path.isdir(path):  # Unlike `Path.is_dir`, False for names too long.
        raise UserError(
            f"model {str(name_or_path)!r} is neither a folder nor one of the packaged models "
            f"({', '.join(packaged)}){did_you_mean(near_names(path, packaged))}"
        )
    is_run = (complete_folder(path / MODEL) / CONFIG).is_file() and not (path / WEIGHTS).is_file()
    return path / MODEL if is_run else path


def kind_of(folder: Path) -> str | None:
    """Which of `FORMATS` a folder holds a model of; None for another folder."""
    path = complete_folder(folder) / CONFIG
    mapping = read_json(path, "model config") if path.is_file() else None
    named = mapping.get("format") if isinstance(mapping, dict) else None
    return next((kind for kind, format in FORMATS.items() if format == named), None)


def read_model_config(folder: Path, kind: str) -> Any:
    """Read the config of a model folder as JSON. kind: the expected one of `FORMATS`."""
    if not folder.is_dir():
        raise UserError(f"model folder {folder} does not exist")
    path = folder / CONFIG
    if any(folder.glob("*.onnx")):
        raise UserError(f"{folder} holds ONNX graphs, which captioner.onnx.load reads")
    mapping = read_json(path, "model config")
    if (found := kind_of(folder)) == kind:
        return mapping
    if found:
        raise UserError(f"{folder} is a {found}, not a {kind}")
    reason = f"it names no format; a run's model is in its folder {MODEL}"
    if isinstance(mapping, dict) and mapping.get("format") is not None:
        reason = f"its format is {mapping['format']!r}, not {FORMATS[kind]!r}"
    raise UserError(f"{path} is not the config of a {kind}: {reason}")


def read_card(folder: Path) -> str:
    """Read the model card; "" if there is none."""
    path = folder / CARD
    return read_text(path, "model card") if path.is_file() else ""


def described(
    folder: Path, facts: Mapping[str, object], sections: Mapping[str, Mapping[str, Any]], card: str
) -> str:
    """The model in a folder as text: facts, the fields of each section, the gist of its card."""
    size = (complete_folder(folder) / WEIGHTS).stat().st_size
    facts = {"model folder": folder, "weights": f"{size / 1e6:.1f} MB", **facts}
    lines = [f"{name:<15}{fact}" for name, fact in facts.items()]
    for title, fields in sections.items():
        lines += ["", title, *(f"  {name}: {value}" for name, value in fields.items())]
    return "\n".join([*lines, "", _gist(card, folder)] if card else lines)


def _gist(card: str, folder: Path) -> str:
    """A model card up to its first section, without the fields for hubs, and where the rest is.

    Control characters, with which a stranger's card could steer a terminal, are left out.
    """
    text = re.sub(r"\A---\n.*?\n---\n", "", card, flags=re.DOTALL).lstrip()
    text = re.sub(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]", "", text)
    start, section, _ = text.partition("\n## ")
    rest = f"\n\n(the whole card: {folder / CARD})" if section else ""
    return start.rstrip() + rest
