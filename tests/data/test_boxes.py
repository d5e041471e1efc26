from __future__ import annotations

from captioner.data.boxes import area


def test_area() -> None:
    assert area((1.0, 2.0, 4.0, 4.5)) == 7.5
    assert area((4.0, 2.0, 1.0, 4.5)) == 0.0
    assert area((4.0, 5.0, 1.0, 2.0)) == 0.0  # both sides negative is no area either
