"""Fixtures that several rooms' tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import make_captioner

from captioner.caption import Captioner, save_model


@pytest.fixture
def tiny_captioner() -> Captioner:
    return make_captioner()


@pytest.fixture
def tiny_model(tmp_path: Path, tiny_captioner: Captioner) -> Path:
    """The folder of the tiny captioner."""
    folder = tmp_path / "tiny-model"
    save_model(tiny_captioner, folder)
    return folder
