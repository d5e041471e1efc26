"""Bounding boxes."""

from __future__ import annotations

Box = tuple[float, float, float, float]
"""(left, top, right, bottom) edges in pixels: the first pixel alone is (0, 0, 1, 1)."""
