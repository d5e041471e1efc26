"""Silences Pillow and libtiff while a photo is decoded; what is wrong with it is raised.

Warning filters, loggers and file descriptors belong to the whole process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Iterator

from PIL import Image

_quiet_lock = threading.Lock()
_quiet_users = 0
_quiet_changes = contextlib.ExitStack()


@contextlib.contextmanager
def pillow_silenced() -> Iterator[None]:
    """Suppress Pillow's warnings and limit of pixels while any thread is inside.

    Both are global: the first thread changes them, the last restores them. Pillow's limit,
    179 million pixels, is below what telephones take; `load_image` has its own.
    """
    global _quiet_users
    with _quiet_lock:
        _quiet_users += 1
        if _quiet_users == 1:
            _quiet_changes.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", module=r"PIL\.")
            _quiet_changes.callback(setattr, Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
            Image.MAX_IMAGE_PIXELS = None
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_users -= 1
            if _quiet_users == 0:
                _quiet_changes.close()


_libtiff_lock = threading.Lock()

logging.getLogger("PIL").addHandler(logging.NullHandler())  # Else Python prints its errors.


@contextlib.contextmanager
def libtiff_silenced() -> Iterator[None]:
    """Discard what is written to file descriptor 2, as libtiff does with its messages."""
    with _libtiff_lock:
        try:
            standard_error = os.dup(2)
        except OSError:  # It is closed.
            yield
            return
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
