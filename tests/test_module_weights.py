import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import deserialize
from safetensors.torch import load_file, save_file

from captioner.errors import UserError
from captioner.module_weights import read_tensors, write_tensors
from captioner.weight_files import weights_header, write_weights

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


def test_a_file_is_what_the_library_reads_and_has_the_mode_of_others(tmp_path: Path) -> None:
    file = tmp_path / "weights.safetensors"
    dtypes = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    floats = (torch.half, torch.bfloat16, torch.float32, torch.float64)
    tensors = {str(dtype): torch.ones(3, 1, dtype=dtype) for dtype in (*dtypes, *floats)}
    tensors |= {"größe": torch.tensor(-2.5), "empty": torch.empty(0, 2)}
    write_weights(file, tensors, {"text": "naïve"})
    torch.testing.assert_close(load_file(file), tensors, rtol=0, atol=0)
    header, places = weights_header(file)
    assert header == ""
    for name, place in places.items():
        assert f"torch.{place.dtype}" == str(tensors[name].dtype)
        assert place.begin % tensors[name].itemsize == 0
    (tmp_path / "other").touch()
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)
    arrays = {"b": np.arange(6).reshape(2, 3), "a": np.float32([[0.5]]), "c": np.array(True)}
    write_weights(file, arrays, {})
    read = {name: bytes(entry["data"]) for name, entry in deserialize(file.read_bytes())}
    assert read == {name: array.tobytes() for name, array in arrays.items()}
