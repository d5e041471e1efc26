"""The files common to all model folders: weights, config, card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captioner.errors import UserError
from captioner.files import read_json, read_text

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


def is_of_format(folder: str | Path, format: str) -> bool:
    """Whether the config of a folder has this format.

    Raises `UserError` if the config cannot be read.
    """
    path = Path(folder) / CONFIG
    return path.is_file() and _format_of(read_json(path, "model config")) == format


def read_model_config(
    folder: Path, format: str, kind: str, later: Mapping[str, Any]
) -> dict[str, Any]:
    """Read the config of a model folder as JSON.

    format: the expected field `format`. kind: name of such models in messages.
    later: values of fields that older folders lack; a mapping for the fields of a section, which
        applies only if the section exists.
    Raises `UserError` if the folder is missing, or naming the file if it cannot be read or has
    another format.
    """
    if not folder.is_dir():
        raise UserError(f"model folder {folder} does not exist")
    path = folder / CONFIG
    mapping = read_json(path, "model config")
    if _format_of(mapping) != format:
        raise UserError(f"{path} is not the config of a {kind} model (format {format!r})")
    return _with_later_fields(mapping, later)


def read_card(folder: Path) -> str:
    """Read the model card; "" if there is none. Raises `UserError` as `read_text` does."""
    path = folder / CARD
    return read_text(path, "model card") if path.is_file() else ""


def _with_later_fields(mapping: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    completed = dict(mapping)
    for name, value in later.items():
        if not isinstance(value, Mapping):
            completed.setdefault(name, value)
        elif isinstance(completed.get(name), Mapping):
            completed[name] = _with_later_fields(completed[name], value)
    return completed


def _format_of(mapping: Any) -> object:
    return mapping.get("format") if isinstance(mapping, dict) else None
