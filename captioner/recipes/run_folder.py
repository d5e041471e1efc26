"""Whether a run may go on in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from captioner.errors import UserError
from captioner.fields import from_mapping, to_mapping
from captioner.files import read_json
from captioner.recipes.config import CaptioningRecipe
from captioner.recipes.translation_config import TranslationRecipe
from captioner.training import CHECKPOINT, check_checkpoint

CONFIG = "config.json"
"""In a run's folder: the recipe that it was made with."""

CHANGEABLE = (
    "training.epochs",
    "training.patience",
    "training.checkpoint_seconds",
    "training.tensorboard",
    "validation.batch_size",
    "features.batch_size",
    "features.folder",
)
"""What a resumed run may have otherwise; any other change would make it another run."""


def check_folder(
    recipe: CaptioningRecipe | TranslationRecipe, folder: Path, resume: bool, processes: int = 1
) -> None:
    """Raise `UserError` where the folder holds a run that this one would not go on with.

    That is any run without `resume`; with it, one whose recipe differs in a field that is not one
    of `CHANGEABLE`, which is named, and one whose checkpoint is damaged, or of a run that was not
    of so many processes.
    """
    if not (folder / CHECKPOINT).exists():
        return
    if not resume:
        raise UserError(f"{folder} holds a run; give --resume to go on with it or another folder")
    path = folder / CONFIG
    made_with = from_mapping(type(recipe), read_json(path, "config of the run"), str(path))
    before, now = _flat(to_mapping(made_with)), _flat(to_mapping(recipe))
    for name in sorted(before.keys() | now.keys()):
        if name in CHANGEABLE or name.startswith("data.archives."):  # Unpacked, it is no matter.
            continue
        if before.get(name) != now.get(name):
            raise UserError(
                f"cannot resume {folder}: it was made with {name} {before.get(name)!r}, "
                f"not {now.get(name)!r}"
            )
    check_checkpoint(folder / CHECKPOINT, processes)


def _flat(mapping: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested mappings by `section.field`."""
    found: dict[str, Any] = {}
    for name, value in mapping.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found
