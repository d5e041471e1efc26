from collections.abc import Callable
from unittest import mock

import pytest
import torch
from refusals import refuses

from captioner.devices import choose_device, fast_device
from captioner.training.distributed import Processes


@pytest.mark.parametrize(
    ("gpus", "mps", "best"), [(0, False, "cpu"), (2, False, "cuda"), (0, True, "mps")]
)
def test_auto_takes_the_best_there_is(
    monkeypatch: pytest.MonkeyPatch, gpus: int, mps: bool, best: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device() == torch.device(best)
    assert choose_device(torch.device("cpu")) == choose_device("cpu") == torch.device("cpu")
    if gpus:
        assert choose_device("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((name, "is not one of auto, cpu, cuda") for name in ("", "gpu", "cuda:x", "meta")),
        *((name, "is not on this machine") for name in ("cuda", "cuda:3", "mps", "cpu:1")),
    ],
)
def test_other_devices_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, reason: str) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    refuses(f"device '{name}' {reason}", choose_device, name)


@pytest.mark.parametrize("use", [fast_device, Processes])
@pytest.mark.parametrize(("device", "is_fast"), [("cpu", False), ("cuda", True)])
def test_a_gpu_uses_tf32_and_times_convolutions(
    monkeypatch: pytest.MonkeyPatch, use: Callable[..., object], device: str, is_fast: bool
) -> None:
    set_precision = mock.Mock()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", set_precision)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    use(torch.device(device))
    assert set_precision.mock_calls == [mock.call("high")] * is_fast
    assert torch.backends.cudnn.benchmark == is_fast
