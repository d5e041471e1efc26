"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import os
import signal
from pathlib import Path

# One thread a test process: pytest-xdist starts a process for each core.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
from hypothesis import HealthCheck, settings
from samples import make_captioner

from captioner.caption import Captioner, save_model

# No time limit on an example: a busy machine is no failure.
PATIENT = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", PATIENT, max_examples=20)
settings.register_profile("thorough", PATIENT, max_examples=300)
settings.load_profile("quick")

# A shell has what it runs in the background ignore Ctrl-C, and programs started from there inherit
# that; the tests of Ctrl-C need it to work.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def tiny_captioner() -> Captioner:
    return make_captioner()


@pytest.fixture
def tiny_model(tmp_path: Path, tiny_captioner: Captioner) -> Path:
    """The folder of the tiny captioner."""
    folder = tmp_path / "tiny-model"
    save_model(tiny_captioner, folder)
    return folder
