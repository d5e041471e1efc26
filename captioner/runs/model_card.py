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


def validations_of(folder: Path, score: str) -> list[Record]:
    """The records with a validation in the log of a run; that of epoch 0 is before training."""
    lines = read_text(folder / LOG, "run log").splitlines()
    return [record for record in map(json.loads, lines) if score in record]


def write_card(
    recipe: Recipe, folder: Path, data: Sequence[str], epoch: int, scores: dict[str, float]
) -> None:
    """Write the card beside a run's best model.

    folder: the run's. data: sentences about training and validation data.
    epoch, scores: of the model that was just kept; epoch 0 is before training.
    """
    score = recipe.validation.score
    start = recipe.start_from if isinstance(recipe, CaptioningRecipe) else None
    kind, tag = "translator", "translation"
    if isinstance(recipe, CaptioningRecipe):
        kind, tag = "captioner", "image-to-text"
    before = [each for each in validations_of(folder, score) if each["epoch"] == 0]
    when = f"after epoch {epoch}" if epoch else "before training"
    summary = f"{score} {scores[score]:.3f} in validation, {when}"
    if before:
        summary += f"; {before[0][score]:.3f} before training"
    version = sys.modules[__name__.partition(".")[0]].__version__
    rows = [
        f"| {record['epoch']} | {' | '.join(f'{record[name]:.4f}' for name in scores)} |"
        for record in [*before, {"epoch": epoch, **scores}]
    ]
    settings = [f"- `{name}`: {value}" for name, value in _settings(recipe).items()]
    lines = [
        *("---", "library_name: captioner", f"pipeline_tag: {tag}", "---", ""),
        f"# A {kind}" + (f", started from {start}" if start is not None else ""),
        *("", f"{summary}.", ""),
        *(f"- {sentence}" for sentence in data),
        *("", "## Scores", ""),
        f"| epoch | {' | '.join(scores).replace('_', ' ')} |",
        f"|---|{'---|' * len(scores)}",
        *rows,
        *("", "## Settings", ""),
        f"captioner {version}; fields of the config that are not the default:",
        *("", *settings, ""),
    ]
    write_text(folder / MODEL / CARD, "\n".join(lines))


def _settings(recipe: Recipe) -> dict[str, Any]:
    """The fields of a recipe that differ from their defaults, by dotted name."""
    settings = flat(recipe.model_dump(mode="json", exclude_defaults=True))
    if "start_from" in settings:  # They are its own, and their path is of this machine.
        settings.pop("encoder.weights", None)
    return settings
