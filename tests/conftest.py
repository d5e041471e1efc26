"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings
from samples import make_captioner

from captioner.caption import Captioner, save_model

# How long an example takes says how busy the machine is.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

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
