"""The photo of `captioner caption --demo`, from matplotlib."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from captioner.errors import UserError


def demo_photo() -> Path:
    """Grace Hopper in uniform, 1984, US Navy (public domain), from matplotlib's sample data.

    Does not import matplotlib, which takes longer than captioning the photo.
    Raises `UserError` if matplotlib or its sample data are not installed.
    """
    package = importlib.util.find_spec("matplotlib")
    for folder in (package.submodule_search_locations or []) if package else []:
        photo = Path(folder) / "mpl-data" / "sample_data" / "grace_hopper.jpg"
        if photo.is_file():
            return photo
    raise UserError("the demo photo is missing: install matplotlib with its sample data")
