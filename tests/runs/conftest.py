"""The config of small runs."""

from pathlib import Path

import pytest
from run_samples import SMALL, Config, make_table


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """`SMALL` with eight photos of two captions each, six to train on."""
    return {**SMALL, "data": make_table(tmp_path)}
