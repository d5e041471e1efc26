"""Reads a config of either task, or makes one for a table of photos."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from captioner.data.table import SUFFIXES
from captioner.errors import UserError
from captioner.runs.captioning_recipe import (
    CaptioningRecipe,
    captioning_recipe,
    read_mapping,
    with_changes,
)
from captioner.runs.translation_recipe import TASK, TranslationRecipe
from captioner.schema import from_mapping

CONFIG_SUFFIXES = (".yaml", ".yml", ".json")

FINE_TUNING: dict[str, Any] = {
    "data": {"format": "table"},
    "start_from": "default",  # Its sizes, words, encoder, preprocessing and search are the run's.
    "minimum_count": 3,  # of a new word
    "objective": {"doubly_stochastic": 0.0, "label_smoothing": 0.1},  # the packaged model's
    "training": {
        "epochs": 20,  # at most; few photos need more, many stop early
        "batch_size": 8,  # A few hundred captions are then enough steps to learn new words.
        "learning_rate": 2e-4,
        "schedule": "cosine",
        "patience": 5,
    },
}
"""Adapts a model to a table of photos."""


def read_any_recipe(
    path: str | Path, changes: Sequence[str] = ()
) -> CaptioningRecipe | TranslationRecipe:
    """Read and validate a YAML config of a captioner or, with `task: translate`, a translator.

    path: also a table of photos and captions, which is `FINE_TUNING` on this table.
    changes, errors: as for `captioner.runs.captioning_recipe.read_recipe`. Raises `UserError` for
        a file named as neither, such as a spreadsheet.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (*CONFIG_SUFFIXES, *SUFFIXES, ""):
        raise UserError(
            f"{path} is neither a config ({', '.join(CONFIG_SUFFIXES)}) nor a table "
            f"({', '.join(SUFFIXES)})"
        )
    if suffix in SUFFIXES:
        mapping = deepcopy(FINE_TUNING)
        mapping["data"]["annotations"] = str(path)
        mapping, where = with_changes(mapping, changes), f"table {path}"
    else:
        mapping, where = read_mapping(path, changes), f"config {path}"
    if not isinstance(mapping, dict) or "task" not in mapping:
        return captioning_recipe(mapping, where)
    if mapping["task"] == TASK:
        return from_mapping(TranslationRecipe, mapping, where)
    raise UserError(
        f"{where}: task {mapping['task']!r} is not {TASK!r}; leave it out for a captioner"
    )
