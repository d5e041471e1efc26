import io
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import Give, Patch, save_photo

from captioner.cli.embedding import Embedder


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path, monkeypatch: Patch) -> Path:
    """The current folder, with the model `tiny-model` and the photos a.png and b.png."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("a.png", "b.png")):
        save_photo(tmp_path / name, number)
    return tmp_path


@pytest.fixture
def give(monkeypatch: Patch) -> Give:
    """Puts bytes on standard input."""

    def put(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))

    return put


@pytest.fixture
def embedder() -> Iterator[Embedder]:
    if shutil.which("exiftool") is None:
        pytest.skip("needs exiftool (Debian's libimage-exiftool-perl)")
    embedder = Embedder()
    yield embedder
    embedder.close()
