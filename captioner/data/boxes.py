"""Bounding boxes."""

from __future__ import annotations

Box = tuple[float, float, float, float]
"""(left, top, right, bottom) edges in pixels: the first pixel alone is (0, 0, 1, 1)."""


def area(box: Box) -> float:
    """Area in square pixels; 0 where the box is empty (right <= left or bottom <= top)."""
    left, top, right, bottom = box
    return max(0.0, right - left) * max(0.0, bottom - top)


def intersection(first: Box, second: Box) -> Box:
    """The overlap of two boxes; of area 0 if there is none."""
    return (
        max(first[0], second[0]),
        max(first[1], second[1]),
        min(first[2], second[2]),
        min(first[3], second[3]),
    )
