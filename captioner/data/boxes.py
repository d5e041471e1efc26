"""Bounding boxes."""

from __future__ import annotations

Box = tuple[float, float, float, float]
"""(left, top, right, bottom) edges in pixels: the first pixel alone is (0, 0, 1, 1)."""


def area(box: Box) -> float:
    """Area in square pixels; 0 where the box is empty (right <= left or bottom <= top)."""
    left, top, right, bottom = box
    return max(0.0, right - left) * max(0.0, bottom - top)
