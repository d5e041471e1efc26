"""What TensorBoard is given; whole runs are in tests/recipes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from captioner.errors import UserError
from captioner.training.tensorboard import TensorBoard


def test_without_the_package_there_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UserError, match=r'package tensorboard: pip install "captioner\[tensorbo'):
        TensorBoard(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "tensorboard").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot write .*tensorboard"):
        TensorBoard(tmp_path)
