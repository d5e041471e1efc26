"""What every model folder has, whichever model is in it: weights, config, card."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from captioner.errors import UserError
from captioner.files import read_json, read_text

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


def is_of_format(folder: str | Path, format: str) -> bool:
    """Whether a folder holds a model of this format, as far as its config says.

    Raises `UserError` for a config that cannot be read.
    """
    path = Path(folder) / CONFIG
    return path.is_file() and _format_of(read_json(path, "model config")) == format


def read_model_config(
    folder: Path, format: str, kind: str, later: Mapping[str, Any]
) -> dict[str, Any]:
    """The config of a model folder, as JSON has it.

    format: what it says in the field of that name. kind: what such a model is called.
    later: fields that older folders do not have, with what these mean by that; a mapping where
        they are in a section, which is left alone where it is not there itself.
    Raises `UserError` for a folder that is missing, and naming the file where it cannot be read or
    is of another format.
    """
    if not folder.is_dir():
        raise UserError(f"model folder {folder} does not exist")
    path = folder / CONFIG
    mapping = read_json(path, "model config")
    if _format_of(mapping) != format:
        raise UserError(f"{path} is not the config of a {kind} model (format {format!r})")
    return _with_later_fields(mapping, later)


def read_card(folder: Path) -> str:
    """The text of the model card; empty where there is none. Raises `UserError` as `read_text`."""
    path = folder / CARD
    return read_text(path, "model card") if path.is_file() else ""


def _with_later_fields(mapping: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(mapping)
    for name, value in later.items():
        if not isinstance(value, Mapping):
            found.setdefault(name, value)
        elif isinstance(found.get(name), Mapping):
            found[name] = _with_later_fields(found[name], value)
    return found


def _format_of(mapping: Any) -> object:
    return mapping.get("format") if isinstance(mapping, dict) else None
