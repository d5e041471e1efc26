"""The photo of `captioner caption --demo`: one that comes with matplotlib."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from captioner.errors import UserError


def demo_photo() -> Path:
    """Grace Hopper in uniform, 1984, US Navy (public domain), from matplotlib's sample data.

    Found without importing matplotlib, which takes longer than captioning the photo.
    Raises `UserError` when matplotlib is not installed or came without its sample data.
    """
    found = importlib.util.find_spec("matplotlib")
    for folder in (found.submodule_search_locations or []) if found else []:
        photo = Path(folder) / "mpl-data" / "sample_data" / "grace_hopper.jpg"
        if photo.is_file():
            return photo
    raise UserError("the demo photo is not there: matplotlib and its sample data are not installed")
