"""Keeps freed memory in the process for the next training step."""

from __future__ import annotations

import ctypes
import platform

_TRIM_THRESHOLD, _MOST_MAPPED = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of glibc's malloc.h.
_NEVER = -1


def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory; returns whether it does.

    Every step allocates the same large tensors. By default glibc returns such blocks to the system
    when they are freed, and the kernel zeroes each page again: up to half of the time of a small
    Transformer's step on a CPU. The process stays as large as its largest step. No effect without
    glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    allocator = ctypes.CDLL(None)
    return bool(allocator.mallopt(_MOST_MAPPED, 0) and allocator.mallopt(_TRIM_THRESHOLD, _NEVER))
