"""Models as ONNX graphs: written with torch, run without it, on a machine or in a browser."""

from __future__ import annotations

NGRAMS = "ngrams.bin"
"""In an exported folder: `Constraints.ngrams`, as little-endian int64."""
