from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from captioner.errors import UserError
from captioner.module_weights import read_tensors, write_tensors

TENSORS = {
    "half": torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).half(),
    "bfloat": torch.ones(2, dtype=torch.bfloat16),
    "scalar": torch.tensor(3),
    "mask": torch.tensor([True, False]),
    "none": torch.empty(0, 2),
}


@given(st.integers(0, 10_000), st.integers(0, 7))
@settings(max_examples=100)
def test_tensors_come_back_and_a_flipped_bit_is_seen(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    file = tmp_path_factory.mktemp("flipped") / "weights.safetensors"
    write_tensors(file, TENSORS)
    torch.testing.assert_close(read_tensors(file), TENSORS, rtol=0, atol=0)
    content = bytearray(file.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    content[header + at % (len(content) - header)] ^= 1 << bit
    file.write_bytes(content)
    with pytest.raises(UserError, match=r"weights\.safetensors are damaged \(their digest is"):
        read_tensors(file)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_without_a_digest_every_weight_must_be_finite(tmp_path: Path, value: float) -> None:
    file = tmp_path / "weights.safetensors"
    save_file(TENSORS, file)
    assert read_tensors(file).keys() == TENSORS.keys()
    save_file({**TENSORS, "bfloat": torch.tensor([1, value], dtype=torch.bfloat16)}, file)
    with pytest.raises(UserError, match=r"weights\.safetensors: tensor 'bfloat' holds NaN or inf"):
        read_tensors(file)
