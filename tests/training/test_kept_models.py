"""The models of the last few validations: what is kept, and what is deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.errors import UserError
from captioner.training.kept_models import keep_model


def save(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    (path / "weights").write_text(path.name)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "models").iterdir())


def test_the_last_few_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    (tmp_path / "models" / "epoch-of-notes").mkdir(parents=True)
    for epoch in range(1, 5):
        keep_model(tmp_path, epoch, 2, save)
    assert names(tmp_path) == ["epoch-003", "epoch-004", "epoch-of-notes"]
    assert (tmp_path / "models" / "epoch-004" / "weights").read_text() == "epoch-004"


def test_a_run_that_went_back_writes_over_what_it_had(tmp_path: Path) -> None:
    for epoch in (8, 9, 10):
        keep_model(tmp_path, epoch, 2, save)
    keep_model(tmp_path, 8, 2, save)
    assert names(tmp_path) == ["epoch-008", "epoch-009", "epoch-010"]
    keep_model(tmp_path, 1000, 2, save)
    assert names(tmp_path) == ["epoch-010", "epoch-1000"]


def test_nothing_is_deleted_where_nothing_could_be_saved(tmp_path: Path) -> None:
    keep_model(tmp_path, 1, 1, save)

    def full(path: Path) -> None:
        raise UserError("the disk is full")

    with pytest.raises(UserError, match="full"):
        keep_model(tmp_path, 2, 1, full)
    assert names(tmp_path) == ["epoch-001"]
