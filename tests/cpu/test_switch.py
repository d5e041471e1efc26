"""The switch of the code written for CPUs."""

from __future__ import annotations

import pytest
import torch

from captioner import cpu


@pytest.mark.parametrize(
    ("device", "value", "expected"),
    [
        ("cpu", None, True),
        ("cpu", "1", True),
        ("cpu", "0", False),
        ("cuda", None, False),
        ("mps", "1", False),
    ],
)
def test_runs_on_a_cpu_unless_switched_off(
    monkeypatch: pytest.MonkeyPatch, device: str, value: str | None, expected: bool
) -> None:
    if value is None:
        monkeypatch.delenv(cpu.SWITCH, raising=False)
    else:
        monkeypatch.setenv(cpu.SWITCH, value)
    assert cpu.enabled(torch.device(device)) is expected
