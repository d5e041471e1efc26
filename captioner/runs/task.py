"""The interface between a run and its task, captioning or translation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.translation_recipe import TranslationRecipe
from captioner.training import Batches, Engine, ShownExample

Recipe = CaptioningRecipe | TranslationRecipe


@dataclass(frozen=True)
class PreparedRun:
    """A task ready to train.

    loss: a module with `loss(batch)`. batches: the training set. parameter_groups: of the
        optimiser; None for all parameters.
    validation_batches: indices of the validation items of each batch.
    generate: batches of indices -> the texts of each batch.
    score: all texts -> scores, and their record beside the model (empty: the scores).
    save: writes the model to a folder. write_texts: writes the texts to the run's folder.
    show: the first items with their texts, for TensorBoard.
    data: sentences about training and validation data and the vocabulary, for the model card.
    starts_trained: whether the model was trained before this run, so that it is validated first.
    """

    loss: nn.Module
    batches: Batches
    validation_batches: Sequence[Sequence[int]]
    generate: Callable[[Sequence[Sequence[int]]], Iterable[Sequence[str]]]
    score: Callable[[list[str]], tuple[dict[str, float], dict[str, Any]]]
    save: Callable[[Path], None]
    write_texts: Callable[[Path, list[str]], None]
    show: Callable[[list[str]], list[ShownExample]]
    data: list[str]
    starts_trained: bool = False
    parameter_groups: list[dict[str, object]] | None = None


class Task(Protocol):
    """Reads data and makes the model, its batches and its validation."""

    recipe: Any

    def read(self, folder: Path, engine: Engine, resumed: bool) -> None:
        """Read the data and make the model with its first weights, before the folder is locked.

        Raises `UserError`.
        """

    def prepare(self, folder: Path, engine: Engine, resumed: bool) -> PreparedRun:
        """Make the batches and the validation. Raises `UserError`."""


def batches_of(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    """Cut numbers into batches of at most `size`."""
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]
