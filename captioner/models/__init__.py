"""The packaged models, each in a folder of its name, and loading by name or path."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.errors import UserError
from captioner.model_folders import CONFIG, WEIGHTS

if TYPE_CHECKING:
    import torch

    from captioner.caption import Captioner
    from captioner.translate import Translator

DEFAULT = "default"
DEFAULT_TRANSLATOR = "english_german"


def packaged_models() -> list[str]:
    """The names of the packaged models."""
    return sorted(path.parent.name for path in Path(__file__).parent.glob(f"*/{CONFIG}"))


def model_folder(name_or_path: str | os.PathLike[str] = DEFAULT) -> Path:
    """The folder of a packaged model, by name, or of any other, by path.

    A name wins over a path; write `./default` for a folder of that name.
    Raises `UserError` if it is neither, and for the folder of a training run.
    """
    if str(name_or_path) in packaged_models():
        return Path(__file__).parent / str(name_or_path)
    path = Path(name_or_path)
    if not path.is_dir():
        raise UserError(
            f"model {str(name_or_path)!r} is neither a folder nor one of the packaged models "
            f"({', '.join(packaged_models()) or 'there are none'})"
        )
    if (path / "model" / CONFIG).is_file() and not (path / WEIGHTS).is_file():
        raise UserError(f"{path} is a training run, not a model; its model is {path / 'model'}")
    return path


def load(
    name_or_path: str | os.PathLike[str] = DEFAULT,
    device: torch.device | str = "cpu",
    precision: str = "auto",
) -> Captioner:
    """Load a captioner: the packaged one by default, another by name or folder.

    device: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto` for the best available.
    precision: of the encoder's weights: `float32`, `bfloat16`, or `auto` for bfloat16 on a CPU with
        instructions for it. To train or save a model, use `captioner.caption.load_model` instead.
    Raises `UserError` for a missing or invalid model, a missing device, and an unknown precision.
    """
    # Imported here: they import torch.
    from captioner.caption import load_model
    from captioner.cpu import choose_precision
    from captioner.devices import choose_device

    chosen = choose_device(device) if isinstance(device, str) else device
    encoder_precision = choose_precision(precision, chosen)
    return load_model(model_folder(name_or_path), chosen).for_inference(encoder_precision)


def load_translator(
    name_or_path: str | os.PathLike[str] = DEFAULT_TRANSLATOR, device: torch.device | str = "cpu"
) -> Translator:
    """Load a translator: the packaged one by default, another by name or folder.

    device: as for `load`. Raises `UserError` likewise.
    """
    from captioner.devices import choose_device
    from captioner.translate import load_translator as load_from

    chosen = choose_device(device) if isinstance(device, str) else device
    return load_from(model_folder(name_or_path), chosen)
