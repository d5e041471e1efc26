"""Times works in turn, and measures how fast the machine is by itself."""

from __future__ import annotations

import functools
import os
import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device multiplies in bfloat16; emulation takes many times as long as float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    if device.type != "cpu":
        return True
    supports = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    if supports is None or not supports():
        return False
    # It also says yes for AVX-512 without bfloat16, where oneDNN emulates.
    return torch.cpu._is_avx512_bf16_supported() or not torch.cpu._is_avx512_supported()


@dataclass(eq=False)
class Machine:
    """What is measured on, and how often."""

    device: torch.device
    repeat: int

    def seconds(self, *works: Callable[[], Any]) -> tuple[list[list[float]], list[Any]]:
        """Seconds of each work's `repeat` runs, taken in turn, and what each gave first."""
        given = [work() for work in works]  # To warm up.
        times: list[list[float]] = [[] for _ in works]
        for _ in range(self.repeat):
            for work, found in zip(works, times, strict=True):
                self.wait()
                begin = time.perf_counter()
                work()
                self.wait()
                found.append(time.perf_counter() - begin)
        return times, given

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    @functools.cache  # noqa: B019  # There is one machine.
    def products(self, dtype: torch.dtype) -> float:
        """Floating point operations a second of a large matrix product."""
        side = 8192 if self.device.type == "cuda" else 2048
        factors = torch.randn(2, side, side, device=self.device).to(dtype)
        return 2 * side**3 / self._seconds(lambda: factors[0] @ factors[1])

    @functools.cache  # noqa: B019
    def bandwidth(self) -> float:
        """Bytes a second, read and written, of a copy that no cache holds."""
        source = torch.ones(1 << 28, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * len(source) / self._seconds(lambda: target.copy_(source))

    def _seconds(self, work: Callable[[], Any]) -> float:
        """Seconds of a work, of 20 in a row on a GPU, where one takes a millisecond."""
        count = 20 if self.device.type == "cuda" else 1
        (seconds,), _ = self.seconds(lambda: [work() for _ in range(count)])
        return min(seconds) / count

    def limit(self, products: float, dtype: torch.dtype, moved: float) -> float:
        """Seconds that so many operations, or so many bytes, take at least."""
        return max(products / self.products(dtype), moved / self.bandwidth())


def described(device: torch.device) -> str:
    """The machine in a line: processor, instructions, threads, load."""
    where = f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}"
    where += ", bfloat16" if has_bfloat16(torch.device("cpu")) else ", no bfloat16"
    where += f", {torch.get_num_threads()} threads of {os.cpu_count()} processors"
    if hasattr(os, "getloadavg"):  # Not on Windows.
        where += f" (load {os.getloadavg()[0]:.1f})"
    if device.type == "cuda":
        where = f"{torch.cuda.get_device_name(device)}; {where}"
    return f"{where}, torch {torch.__version__}"


def _processor() -> str:
    """The processor's name, from Linux if it knows it."""
    information = Path("/proc/cpuinfo")
    text = information.read_text() if information.exists() else ""
    named = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return named[1] if named else platform.processor() or platform.machine()
