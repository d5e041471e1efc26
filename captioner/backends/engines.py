"""Chooses what computes a model: the table of engines, and the backends of others."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal, get_args

from captioner.errors import INSTALL, GraphError, UserError
from captioner.model_folders import ModelFolder
from captioner.models.score_config import scores as scores

if TYPE_CHECKING:
    import torch

EngineName = Literal["auto", "graphs", "torch"]

ENGINES = {
    "captioner": {
        "graphs": "captioner.backends.graph_captions:open_captions",
        "torch": "captioner.backends.torch_captions:open_captions",
        "transformers": "captioner.backends.transformers_captions:open_captions",
    },
    "translator": {
        "graphs": "captioner.backends.graph_translations:open_translations",
        "torch": "captioner.backends.torch_translations:open_translations",
    },
}
"""By kind of model: what opens a `ModelFolder`; for torch on a device, in a precision."""

GROUP = "captioner.backends"
"""Of entry points: `name = "module:function"`, for folders whose config has `backend: name`."""


def other_backends() -> dict[str, EntryPoint]:
    """The backends that other packages bring, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def open_backend(
    folder: ModelFolder,
    kind: str,
    device: torch.device | str,
    precision: str,
    engine: EngineName,
) -> Any:
    """The backend of a model folder: a `CaptionBackend`, or a `TranslationBackend`.

    kind: the expected one of `ENGINES`. Where graphs cannot be used, torch computes if it can.
    """
    if engine not in get_args(EngineName):
        raise UserError(f"engine {engine!r} is not one of {', '.join(get_args(EngineName))}")
    if folder.backend is not None or folder.model_type is not None:
        name = folder.backend or "transformers"
        if engine != "auto":
            raise UserError(f"{folder.path} has one engine, {name!r}, and no {engine!r}")
        if folder.backend is None:
            return resolve_name(ENGINES[kind][name])(folder, str(device), precision)
        return _open_other(folder, name, str(device), precision)
    if _takes_graphs(folder, str(device), precision, engine):
        try:
            return resolve_name(ENGINES[kind]["graphs"])(folder)
        except GraphError:
            if engine == "graphs" or not folder.has_weights or find_spec("torch") is None:
                raise
    return resolve_name(ENGINES[kind]["torch"])(folder, str(device), precision)


def _open_other(folder: ModelFolder, name: str, device: str, precision: str) -> Any:
    found = other_backends()
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        needs = f"needs the backend {name!r} of another package"
        raise UserError(f"{folder.path} {needs}; installed are: {known}")
    try:
        return found[name].load()(folder, device, precision)
    except UserError:
        raise
    except Exception as error:  # Of code that is not ours.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{folder.path}: its backend {name!r} cannot be opened: {reason}") from None


def _takes_graphs(folder: ModelFolder, device: str, precision: str, engine: EngineName) -> bool:
    """Whether the networks of a model are computed by graphs."""
    is_plain = device in ("auto", "cpu") and precision == "float32"
    if engine == "graphs" and not is_plain:
        raise UserError(f"graphs run on a CPU in float32, not on {device} in {precision}")
    if engine != "auto":
        return engine == "graphs"
    if not is_plain or not folder.has_graphs:
        if find_spec("torch") is None:
            where = f"on device {device} in {precision}"
            raise UserError(f"the model {folder.path} {where} needs torch: {INSTALL}")
        return False
    if device == "auto" and may_have_gpu("auto"):
        from captioner.devices import choose_device

        return choose_device("auto").type == "cpu"
    return True


def write_graphs(folder: Path) -> str:
    """Write graphs beside a trained model; returns why that is not possible, or ""."""
    from captioner.backends.export import add_graphs

    try:
        add_graphs(folder)
    except Exception as error:  # Exporters raise many kinds; the model works without.
        return (str(error) or repr(error)).splitlines()[0]
    return ""


def may_have_gpu(device: object) -> bool:
    """Whether a device may be a GPU; asked of `auto` without importing torch."""
    if find_spec("torch") is None or str(device) == "cpu":
        return False
    drivers = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's, Windows', AMD's.
    return str(device) != "auto" or sys.platform != "linux" or any(map(os.path.exists, drivers))
