"""What a run trains: one task for captioners, one for translators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.translation_task import TranslationRecipe
from captioner.training.distributed import Engine
from captioner.training.loop import Validated
from captioner.training.step import Batches

Recipe = CaptioningRecipe | TranslationRecipe


class Task(Protocol):
    """A model with its data, which it reads when it is made, before the run's folder is locked.

    data: sentences about the data, for the model's card. order: the rows to validate on.
    """

    data: list[str]
    order: list[int]

    @property
    def kind(self) -> str:
        """What the model is, in words."""

    @property
    def pipeline_tag(self) -> str:
        """The hub's word for what the model does."""

    @property
    def recipe(self) -> Recipe:
        """The config of the run."""

    @property
    def loss(self) -> nn.Module:
        """Has `loss(batch)`, as `captioner.training.loop.train` takes it."""

    @property
    def batches(self) -> Batches:
        """The training data, once prepared."""

    @property
    def parameter_groups(self) -> list[dict[str, Any]] | None:
        """Groups of the optimiser; None for all parameters in one."""

    def prepare(self, folder: Path, engine: Engine, resumed: bool) -> None:
        """Move to the engine's device and make the batches."""

    def generate(self, batches: Sequence[Sequence[int]]) -> Iterator[str]:
        """Texts for batches of the rows of `order`."""

    def score(self, texts: list[str]) -> Validated:
        """Score the texts of all rows of `order`."""

    def save(self, folder: Path, validated: Validated, epoch: int) -> None:
        """Save the model with its scores, and the texts, in the folder of a run."""

    def remarks(self, folder: Path, best_epoch: int) -> list[str]:
        """Sentences on the best model, at the end of a run."""
