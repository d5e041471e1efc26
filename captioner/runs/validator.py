"""Validates a run between epochs on generated texts, without teacher forcing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from captioner.files import write_json
from captioner.model_folders import MODEL
from captioner.runs.task import PreparedRun
from captioner.training import Engine, ShownExample

SCORES_FILE = "scores.json"
"""In the folder of the best model: its validation scores."""


class Validator:
    """Generates, scores and keeps the best; the functions of `captioner.training.Validation`."""

    def __init__(self, run: PreparedRun, folder: Path, engine: Engine) -> None:
        self.prepared, self.folder, self.engine = run, folder, engine
        self.texts: list[str] = []
        self.record: dict[str, Any] = {}

    def run(self) -> dict[str, float]:
        """Generate together with the other processes; the main process returns the scores.

        Processes take whole batches in turn, so that scores do not depend on their number.
        """
        own: dict[int, str] = {}
        with self.engine.fail_together():
            batches = self.prepared.validation_batches[self.engine.rank :: self.engine.world_size]
            for batch, texts in zip(batches, self.prepared.generate(batches), strict=True):
                own |= zip(batch, texts, strict=True)
        generated: dict[int, str] = {}
        for share in self.engine.gather(own):
            generated |= share
        self.texts = [generated[number] for number in range(len(generated))]
        with self.engine.fail_together():
            if not self.engine.is_main:
                return {}
            scores, self.record = self.prepared.score(self.texts)
            return scores

    def keep(self, scores: dict[str, float]) -> None:
        """Save the best model, its scores and its texts."""
        self.prepared.save(self.folder / MODEL)
        write_json(self.folder / MODEL / SCORES_FILE, self.record or scores)
        self.prepared.write_texts(self.folder, self.texts)

    def show(self) -> list[ShownExample]:
        """The first validation examples, for TensorBoard."""
        return self.prepared.show(self.texts)
