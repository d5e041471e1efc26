"""What is freed is kept: counted in pages that the system had to give."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest
from samples import Patch

from captioner.training.freed_memory import keep_freed_memory

PROGRAM = """
import resource
import sys

import torch

from captioner.training.freed_memory import keep_freed_memory


def pages_given() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.zeros(1 << 24)  # 64 MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


if sys.argv[1] == "keep":
    assert keep_freed_memory()
pages_given()
print(pages_given())
"""


def pages(*arguments: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives memory back so")
def test_pages_are_asked_for_once() -> None:
    assert pages("keep") < pages("plain") / 10


def test_elsewhere_nothing_is_changed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()
