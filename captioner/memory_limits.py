"""How much memory there is, and errors that mean too little of it."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

from captioner.errors import UserError

_CONTAINERS = ("memory.max", "memory/memory.limit_in_bytes")  # Linux: cgroups 2, 1.
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
            sizes.append(int(Path("/sys/fs/cgroup", name).read_text()))
    return min(sizes)


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
