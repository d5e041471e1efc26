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
"""By kind of model: the function that opens a `ModelFolder` on a device in a precision."""

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
    """The backend of a model folder: a `CaptionBackend` or, of a translator, its.

    kind: the expected one of `ENGINES`. Where graphs cannot be used, torch computes if it can.
    """
    if engine not in get_args(EngineName):
        raise UserError(f"engine {engine!r} is not one of {', '.join(get_args(EngineName))}")
    if folder.backend is not None:
        return _open_other(folder, folder.backend, kind, str(device), precision)
    if folder.model_type is not None and kind == "captioner":
        return resolve_name(ENGINES[kind]["transformers"])(folder, str(device), precision)
    if _takes_graphs(folder, str(device), precision, engine):
        try:
            return resolve_name(ENGINES[kind]["graphs"])(folder)
        except GraphError:
            if engine == "graphs" or not folder.has_weights or find_spec("torch") is None:
                raise
    return resolve_name(ENGINES[kind]["torch"])(folder, str(device), precision)


def _open_other(folder: ModelFolder, name: str, kind: str, device: str, precision: str) -> Any:
    found = other_backends()
    if kind != "captioner" or name not in found:
        known = ", ".join(sorted(found)) or "none"
        needs = f"needs the backend {name!r} of another package, for captioners"
        raise UserError(f"{folder.path} {needs}; installed are: {known}")
    return found[name].load()(folder, device, precision)


def _takes_graphs(folder: ModelFolder, device: str, precision: str, engine: EngineName) -> bool:
    """Whether the networks of a model are computed by graphs."""
    is_plain = device in ("auto", "cpu") and precision == "float32"
    if engine == "graphs" and not is_plain:
        raise UserError(f"graphs run on a CPU in float32, not on {device} in {precision}")
    if engine != "auto":
        return engine == "graphs"
    if find_spec("torch") is None:
        if not is_plain or not folder.has_graphs:
            where = f"on device {device} in {precision}"
            raise UserError(f"the model {folder.path} {where} needs torch: {INSTALL}")
        return True
    if not is_plain or not folder.has_graphs:
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
