"""Folders with graphs: of a trained model, which run without torch, and exported ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from captioner.model_folders import complete_folder, copy_model, saving

if TYPE_CHECKING:
    from captioner.onnx.stored_weights import Precision


def write_graphs(folder: Path) -> str:
    """Write graphs beside a trained model; returns why that is not possible, or ""."""
    from captioner.onnx.export import add_graphs

    try:
        add_graphs(folder)
    except Exception as error:  # Exporters raise many kinds; the model works without.
        return (str(error) or repr(error)).splitlines()[0]
    return ""


def export_folder(model: Path, folder: Path, precision: Precision, page: bool) -> str:
    """Export a captioner, with a page for browsers if asked; returns how weights are stored."""
    from captioner.onnx.page import has_graphs_for_browsers, write_page

    if page and precision == "float32" and has_graphs_for_browsers(model):
        stored = "weights as in MODEL"
        with saving(folder) as files:
            copy_model(complete_folder(model), files)
    else:
        from captioner.caption.folder import load_model
        from captioner.onnx.export import export_captioner

        stored = f"weights in {precision}"
        export_captioner(load_model(model).for_inference(), folder, precision)
    if page:
        write_page(folder)
    return stored
