"""Reads a config of either task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from captioner.errors import UserError
from captioner.runs.captioning_recipe import CaptioningRecipe, read_mapping
from captioner.runs.translation_recipe import TASK, TranslationRecipe
from captioner.schema import from_mapping


def read_any_recipe(
    path: str | Path, changes: Sequence[str] = ()
) -> CaptioningRecipe | TranslationRecipe:
    """Read and validate a YAML config of a captioner or, with `task: translate`, a translator.

    changes, errors: as for `captioner.runs.captioning_recipe.read_recipe`.
    """
    mapping = read_mapping(path, changes)
    where = f"config {path}"
    if not isinstance(mapping, dict) or "task" not in mapping:
        return from_mapping(CaptioningRecipe, mapping, where)
    if mapping["task"] == TASK:
        return from_mapping(TranslationRecipe, mapping, where)
    raise UserError(
        f"{where}: task {mapping['task']!r} is not {TASK!r}; leave it out for a captioner"
    )
