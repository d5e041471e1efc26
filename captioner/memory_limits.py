"""How much memory and how many cores there are, and errors that mean too little memory."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
from pathlib import Path

from captioner.errors import UserError

_CGROUPS = Path("/sys/fs/cgroup")  # Linux.
_CONTAINERS = ("memory.max", "memory/memory.limit_in_bytes")  # Cgroups 2, 1.
_QUOTAS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))  # Cgroups 2, 1.
# The last two: of onnxruntime's limit; of a library.
_MESSAGES = re.compile(
    "out of memory|(?:can't|annot) allocate memory|not enough memory|ALLOC_FAILED|bad_alloc|"
    "can't start new thread|Available memory of|failed to map segment"
)


def address_limit() -> int:
    """The bytes that `ulimit -v` allows; `sys.maxsize` without such a limit."""
    with contextlib.suppress(ImportError):  # Windows.
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            return limit
    return sys.maxsize


def memory_size() -> int:
    """The bytes of memory that this process may take, at most."""
    sizes = [address_limit()]
    with contextlib.suppress(AttributeError, ValueError, OSError):  # Windows.
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in _CONTAINERS:
        with contextlib.suppress(OSError, ValueError):  # "max": no limit.
            sizes.append(int((_CGROUPS / name).read_text()))
    return min(sizes)


def allowed_cores() -> int:
    """The cores that this process may use at a time: its affinity, or its cgroup's quota."""
    cores = os.cpu_count() or 1
    with contextlib.suppress(AttributeError):  # Linux only.
        cores = len(os.sched_getaffinity(0))
    for names in _QUOTAS:
        with contextlib.suppress(OSError, ValueError):  # "max": no quota.
            text = " ".join((_CGROUPS / name).read_text() for name in names)
            quota, period = map(int, text.split())  # Microseconds; -1: no quota.
            cores = min(cores, max(1, math.ceil(quota / period))) if quota > 0 else cores
    return cores


def peak_memory() -> int | None:
    """The most bytes of memory that this process has held; None on Windows."""
    with contextlib.suppress(ImportError):
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
    return None


def check_memory(size: int, what: str) -> None:
    """Refuse what takes more bytes of memory than there are."""
    if size > memory_size():
        there = f"{memory_size() / 1e9:.1f} GB of memory"
        raise UserError(f"{what} takes {size / 1e9:.1f} GB, and there are {there}")


def is_memory_error(error: BaseException) -> bool:
    """Whether memory or address space was too little for Python, torch, a GPU or a library."""
    return isinstance(error, MemoryError) or bool(_MESSAGES.search(str(error)))


def memory_sentence(error: BaseException) -> str:
    """Such an error as a sentence: what was asked for, and the limit."""
    limit = address_limit()
    allowed = f", and ulimit -v allows {limit / 1e9:.1f} GB" if limit < sys.maxsize else ""
    if isinstance(error, ImportError):
        return f"there is too little memory to load a library ({error}){allowed}"
    amount = re.search(r"tried to allocate ([\d.]+ \w+)", str(error), re.IGNORECASE)
    size = f" for {amount[1]} more" if amount else ""
    return f"there is too little memory{size}{allowed}; smaller batches take less"
