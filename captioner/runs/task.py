"""What a run asks of its task: a captioner or a translator to train."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.translation_recipe import TranslationRecipe
from captioner.training import Engine, SharedBatches, ShownExample

Recipe = CaptioningRecipe | TranslationRecipe


@dataclass(frozen=True)
class PreparedRun:
    """A task ready to train.

    loss: a module with `loss(batch)`. batches: the training set. parameter_groups: of the
        optimiser; None for all parameters.
    validation_batches: the numbers of the validation items that are generated together.
    generate: batches of numbers -> the texts of each batch.
    score: all texts -> scores, and the record of them that is kept beside the model (empty: the
        scores themselves).
    save: writes the model into a folder. write_texts: writes the texts into the run's folder.
    show: the first items with their texts, for TensorBoard.
    """

    loss: nn.Module
    batches: SharedBatches
    validation_batches: Sequence[Sequence[int]]
    generate: Callable[[Sequence[Sequence[int]]], Iterable[Sequence[str]]]
    score: Callable[[list[str]], tuple[dict[str, float], dict[str, Any]]]
    save: Callable[[Path], None]
    write_texts: Callable[[Path, list[str]], None]
    show: Callable[[list[str]], list[ShownExample]]
    parameter_groups: list[dict[str, object]] | None = None


class Task(Protocol):
    """Reads data and makes the model, its batches and its validation."""

    def read(self, folder: Path, resumed: bool) -> None:
        """Read the data, before the folder is locked. Raises `UserError` for what is wrong."""
        ...

    def prepare(self, folder: Path, engine: Engine, resumed: bool) -> PreparedRun:
        """Make the model and its batches. Raises `UserError`."""
        ...


def batches_of(numbers: Sequence[int], size: int) -> list[Sequence[int]]:
    """Cut numbers into batches of at most `size`."""
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]
