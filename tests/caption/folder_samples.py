"""Model folders that are changed, and refused."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from captioner.caption.folder import load_model
from captioner.errors import UserError


@contextmanager
def config_of(folder: Path) -> Iterator[dict[str, Any]]:
    """The fields of a folder's config; changes of them are written."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    yield config
    path.write_text(json.dumps(config))


def refused(folder: Path, file: str) -> str:
    """The sentence with which a folder is refused; it names the file."""
    with pytest.raises(UserError) as error:
        load_model(folder)
    sentence = str(error.value)
    assert str(folder / file) in sentence
    assert "\n" not in sentence
    return sentence
