"""The model card of a run: data, settings and scores of its best model."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from captioner.files import read_text, write_text
from captioner.model_folders import CARD, MODEL
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.translation_recipe import TranslationRecipe
from captioner.schema import flat
from captioner.training import LOG

SCORES_FILE = "scores.json"
"""Beside the best model: its validation scores."""

Record = dict[str, Any]
Recipe = CaptioningRecipe | TranslationRecipe


def validations_of(
    folder: Path, score: str, now: Record | None = None
) -> tuple[Record, Record, Record]:
    """The first, the best and the last record with a validation in the log of a run.

    The record of epoch 0 is of the model before training. Of several best ones, the first was kept.
    now: a validation that is not in the log yet.
    """
    lines = read_text(folder / LOG, "run log").splitlines()
    records = [record for record in map(json.loads, lines) if score in record]
    records += [now] if now else []
    return records[0], max(records, key=lambda record: record[score]), records[-1]


def write_card(
    recipe: Recipe, folder: Path, data: Sequence[str], now: Record | None = None
) -> None:
    """Write the card beside a run's best model.

    folder: the run's. data: sentences about training and validation data.
    now: epoch and scores of a model that was just kept, in a run that has not ended.
    """
    score = recipe.validation.score
    first, best, last = validations_of(folder, score, now)
    start = recipe.start_from if isinstance(recipe, CaptioningRecipe) else None
    kind, tag = "translator", "translation"
    if isinstance(recipe, CaptioningRecipe):
        kind, tag = "captioner", "image-to-text"
    value, epochs = f"{score} {best[score]:.3f} in validation", last["epoch"]
    summary, compared = f"{value}, after {best['epoch']} of {epochs} epochs", [best]
    if now:
        summary = f"{value}, after epoch {now['epoch']} of a training that had not ended"
    elif best["epoch"] == 0:
        summary = f"{value} before training, which none of {epochs} epochs surpassed"
    elif first["epoch"] == 0:
        summary += f"; {first[score]:.3f} before training"
        compared = [first, best]
    scores = [name for name, value in best.items() if _is_score(name) and isinstance(value, float)]
    version = sys.modules[__name__.partition(".")[0]].__version__
    lines = [
        *("---", "library_name: captioner", f"pipeline_tag: {tag}", "---", ""),
        f"# A {kind}" + (f", started from {start}" if start is not None else ""),
        "",
        f"{summary}.",
        "",
        *(f"- {sentence}" for sentence in data),
        "",
        "## Scores",
        "",
        f"| epoch | {' | '.join(scores)} |",
        f"|---|{'---|' * len(scores)}",
        *(
            f"| {record['epoch']} | {' | '.join(f'{record[name]:.4f}' for name in scores)} |"
            for record in compared
        ),
        "",
        "## Settings",
        "",
        f"captioner {version}; fields of the config that are not the default:",
        "",
        *(f"- `{name}`: {value}" for name, value in _settings(recipe).items()),
        "",
    ]
    write_text(folder / MODEL / CARD, "\n".join(lines))


def _is_score(name: str) -> bool:
    return name not in ("epoch", "step", "learning_rate") and not name.startswith("train_")


def _settings(recipe: Recipe) -> dict[str, Any]:
    """The fields of a recipe that differ from their defaults, by dotted name."""
    settings = flat(recipe.model_dump(mode="json", exclude_defaults=True))
    if "start_from" in settings:  # They are its own, and their path is of this machine.
        settings.pop("encoder.weights", None)
    return settings
