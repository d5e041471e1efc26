"""Products of few rows against torch's."""

import pytest
import torch
from torch.nn import functional

from captioner import cpu


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 7), (1, 5, 7), (3, 4, 1, 7), (1, 7), (33, 7)])
def test_products_are_torchs(
    shape: tuple[int, ...], bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_LARGE", 77)
    torch.manual_seed(0)
    layer = cpu.Linear(7, 11, bias=bias)
    # Like the state of a beam, not contiguous.
    inputs = torch.randn(*shape[:-1], 2 * shape[-1])[..., ::2]
    with torch.no_grad():
        found = layer(inputs)
    torch.testing.assert_close(found, functional.linear(inputs, layer.weight, layer.bias))
    assert found.is_contiguous()


def test_only_few_rows_of_large_weights_without_a_gradient_are_transposed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    monkeypatch.setattr(cpu.functional, "linear", lambda *given: calls.append(given))
    layer = cpu.Linear(7, 11)
    with torch.no_grad():
        assert layer(torch.zeros(5, 7)) is None  # Its weights are small.
        monkeypatch.setattr(cpu, "_LARGE", 77)
        assert layer(torch.zeros(5, 7)) is not None
        for rows in (1, 33):
            assert layer(torch.zeros(rows, 7)) is None
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(torch.zeros(5, 7)) is None
        monkeypatch.setenv(cpu.SWITCH, "0")
        assert layer(torch.zeros(5, 7)) is None
    monkeypatch.delenv(cpu.SWITCH)
    assert layer(torch.zeros(5, 7)) is None
    assert len(calls) == 6
