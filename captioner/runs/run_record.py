"""Records the environment of a run: versions, device, processes."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import numpy
import torch

from captioner.errors import UserError
from captioner.files import read_json, write_json
from captioner.training import Engine

RECORD = "environment.json"
"""File in a run's folder: a list with an entry for each start and resume."""


def write_record(folder: Path, seed: int, engine: Engine, resumed: bool) -> None:
    """Write the environment; a resumed run appends to its earlier entries.

    Raises `UserError` if the file cannot be read or written.
    """
    path = folder / RECORD
    before: Any = read_json(path, "record of the run") if resumed and path.exists() else []
    if not isinstance(before, list):
        raise UserError(f"record of the run {path} is not a list; delete it to continue")
    device = str(engine.device)
    if engine.device.type == "cuda":
        device = torch.cuda.get_device_name(engine.device)
    record = {
        "captioner": sys.modules[__name__.partition(".")[0]].__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": platform.platform(),
        "device": device,
        "processes": engine.size,
        "threads": torch.get_num_threads(),
        "seed": seed,
    }
    write_json(path, [*before, record])
