from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image
from samples import save_photo

from captioner.render.save import PICTURE_SUFFIXES, save_picture
from captioner.vision.drawn import is_drawn


@pytest.mark.parametrize("suffix", PICTURE_SUFFIXES)
def test_a_drawing_is_known_from_a_photo(tmp_path: Path, suffix: str) -> None:
    photo, drawing = save_photo(tmp_path / f"photo{suffix}"), tmp_path / f"drawing{suffix}"
    save_picture(drawing, Image.new("RGB", (9, 9)))
    assert is_drawn(drawing)
    assert not is_drawn(photo)
    (tmp_path / "text.png").write_text("no picture")
    assert not is_drawn(tmp_path / "text.png")
