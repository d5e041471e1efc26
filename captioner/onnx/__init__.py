"""Captioners as ONNX graphs: written with torch, run without it, on a machine or in a browser."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.errors import refuse_missing

if TYPE_CHECKING:
    from captioner.onnx.captioner import OnnxCaptioner

FORMAT = "captioner-onnx-1"
DESCRIPTION = "captioner.json"  # The file that describes the graphs of a folder.
NGRAMS = "ngrams.bin"


def load(folder: str | os.PathLike[str]) -> OnnxCaptioner:
    """Load a folder that `captioner export` wrote; torch is not imported."""
    with refuse_missing("ONNX needs onnxruntime", "onnx"):
        import onnxruntime  # noqa: F401
    from captioner.onnx.captioner import OnnxCaptioner

    return OnnxCaptioner(Path(folder))
