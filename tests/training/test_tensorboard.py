"""What TensorBoard is given; whole runs are in tests/runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from samples import Patch
from training_samples import log_of, run

from captioner.errors import UserError
from captioner.training import loop
from captioner.training.log import TensorBoard


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "tensorboard").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write .*tensorboard"):
        TensorBoard(tmp_path)


class Board:
    """What would be written, without the package."""

    records: list[dict[str, Any]]

    def __init__(self, folder: Path, step: int = 0) -> None:
        Board.records = []

    def write(self, record: dict[str, Any]) -> None:
        Board.records.append(record)

    def close(self) -> None:
        pass


def test_the_loss_is_shown_amid_an_epoch(tmp_path: Path, monkeypatch: Patch) -> None:
    """Four steps an epoch, looked at behind every second."""
    monkeypatch.setattr(loop, "TensorBoard", Board)
    monkeypatch.setattr(loop, "SCALAR_STEPS", 2)
    run(tmp_path, tensorboard=True, epochs=2)
    amid = [record for record in Board.records if "steps/loss" in record]
    assert [record["step"] for record in amid] == [2, 4, 6, 8]
    assert {record["steps/learning_rate"] for record in amid} == {0.05}
    for epoch, record in enumerate(log_of(tmp_path)):
        halves = [each["steps/loss"] for each in amid[2 * epoch : 2 * epoch + 2]]
        assert sum(halves) / 2 == pytest.approx(record["train_loss"])
