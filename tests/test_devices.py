from __future__ import annotations

import pytest
import torch

from captioner.devices import choose_device, has_bfloat16
from captioner.errors import UserError


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
    assert choose_device("cpu") == torch.device("cpu")
    if gpus:
        assert choose_device("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize("name", ["", "gpu", "cuda:x", "meta", "cuda:-1"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="is not one of auto, cpu, cuda"):
        choose_device(name)


@pytest.mark.parametrize("name", ["cuda", "cuda:3", "mps", "cpu:1"])
def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=f"device '{name}' is not on this machine"):
        choose_device(name)


@pytest.mark.parametrize("known", [True, False])
def test_a_processor_says_whether_it_has_bfloat16(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: known)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    assert has_bfloat16(torch.device("cpu")) is known


@pytest.mark.parametrize("avx512", [True, False])
def test_avx_512_without_bfloat16_emulates_it(
    monkeypatch: pytest.MonkeyPatch, avx512: bool
) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: avx512)
    assert has_bfloat16(torch.device("cpu")) is not avx512


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), False), ((8, 0), True)])
def test_a_gpu_says_whether_it_has_bfloat16(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], expected: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert has_bfloat16(torch.device("cuda")) is expected
