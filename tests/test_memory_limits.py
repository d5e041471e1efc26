"""Too little memory: before it is allocated, when it is, and while torch is loaded."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from photo_samples import DEMO_CAPTION
from refusals import refuses
from torch import nn

from captioner import memory_limits
from captioner.backends.graphs import default_threads
from captioner.devices import fast_device
from captioner.memory_limits import check_memory, is_memory_error, memory_sentence
from captioner.module_weights import make_trainable


def test_sizes_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = make_trainable(lambda: nn.Linear(2, 3), "a layer")
    assert not layer.weight.is_meta
    refused = r"training a layer takes 10\d+\.\d GB, and there are"
    refuses(refused, make_trainable, lambda: nn.Linear(65_536, 10**6), "a layer")
    monkeypatch.setattr(memory_limits, "address_limit", lambda: 10**9)
    check_memory(10**9, "a photo")
    refused = r"^a photo takes 2\.5 GB, and there are 1\.0 GB of memory$"
    refuses(refused, check_memory, 2_500_000_000, "a photo")


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 6),
        ({"cpu.max": "max 100000"}, 6),
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "900000 100000"}, 6),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 6),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
    ],
)
def test_cores_are_those_of_the_affinity_and_the_quota(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(memory_limits, "_CGROUPS", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(6)), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert (memory_limits.allowed_cores(), default_threads()) == (cores, cores)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        fast_device("cpu")
        assert torch.get_num_threads() == min(4, cores)
    finally:
        torch.set_num_threads(before)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert default_threads() == 5


MESSAGES = [
    (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0"), "2.00 GiB"),
    (RuntimeError("can't allocate memory: you tried to allocate 7 bytes."), "7 bytes"),
    (RuntimeError("unable to mmap 9 bytes from file <a>: Cannot allocate memory (12)"), "memory;"),
    (ImportError("libtorch.so: failed to map segment from shared object"), "load a library (libt"),
]


@pytest.mark.parametrize(("error", "said"), MESSAGES)
def test_errors_of_memory_are_sentences(error: Exception, said: str) -> None:
    assert is_memory_error(error)
    sentence = memory_sentence(error)
    assert sentence.startswith("there is too little memory ") or said == "memory;"
    assert said in sentence
    assert "\n" not in sentence
    assert not is_memory_error(RuntimeError("The size must match"))


@pytest.mark.skipif(sys.platform != "linux", reason="a limit of address space is Linux's")
def test_graphs_caption_where_torch_does_not_fit() -> None:
    caption = '"$0" -m captioner caption --demo'
    command = f"ulimit -v 900000; {caption}; {caption} --engine torch"
    shell = ["/bin/sh", "-c", command, sys.executable]
    done = subprocess.run(shell, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, f"{DEMO_CAPTION}\n")
    sentence = done.stderr.splitlines()[-1]  # Before it, whether the caption is not sure.
    assert sentence.startswith("captioner: there is too little memory to load a library")
    assert sentence.endswith("and ulimit -v allows 0.9 GB")
