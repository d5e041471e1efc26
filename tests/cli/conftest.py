import io
import sys

import pytest
from samples import Give, Patch


@pytest.fixture
def give(monkeypatch: Patch) -> Give:
    """Puts bytes on standard input."""

    def put(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))

    return put
