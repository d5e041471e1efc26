from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from captioner.errors import UserError
from captioner.render.save import save_picture


@pytest.mark.parametrize(
    ("name", "kind"), [("a.png", "PNG"), ("a.JPG", "JPEG"), ("a.webp", "WEBP")]
)
def test_format_follows_the_name(tmp_path: Path, name: str, kind: str) -> None:
    save_picture(tmp_path / name, Image.new("RGB", (5, 4), "red"))
    with Image.open(tmp_path / name) as written:
        assert written.format == kind
        assert written.size == (5, 4)


@pytest.mark.parametrize("name", ["a", "a.txt", "a.gif"])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"must end in \.png"):
        save_picture(tmp_path / name, Image.new("RGB", (5, 4)))
    assert list(tmp_path.iterdir()) == []
