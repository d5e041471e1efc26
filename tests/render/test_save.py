from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from render_samples import PHOTO, REGION, attention
from samples import imported

from captioner.render.overlay import overlay
from captioner.render.save import safe_name, save_picture, save_word_images


def test_one_picture_a_word_in_order(tmp_path: Path) -> None:
    maps = attention(3)
    folder = tmp_path / "new" / "folder"
    paths = save_word_images(folder, PHOTO, ["a", "Dog/..", "a"], maps, REGION)
    assert [path.name for path in paths] == ["01_a.jpg", "02_dog.jpg", "03_a.jpg"]
    assert sorted(folder.iterdir()) == paths  # nothing else, no temporary file
    for path, weights in zip(paths, maps, strict=True):
        with Image.open(path) as written:
            expected = np.asarray(overlay(PHOTO, weights, REGION), float)
            assert np.abs(np.asarray(written) - expected).mean() < 5


def test_a_large_photo_is_made_smaller(tmp_path: Path) -> None:
    large = Image.new("RGB", (2000, 1000))
    (path,) = save_word_images(tmp_path, large, ["a"], attention(1), (0, 0, 1000, 1000))
    with Image.open(path) as small:
        assert small.size == (1024, 512)


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("dog", "dog"),
        ("T-shirt", "t-shirt"),
        ("Überraschung", "uberraschung"),
        ("../../etc/passwd", "etc-passwd"),
        ("<unk>", "unk"),
        ("犬", "word"),
        ("...", "word"),
        ("x" * 300, "x" * 40),
    ],
)
def test_safe_names(word: str, name: str) -> None:
    assert safe_name(word) == name


@given(st.text(alphabet=st.characters()))
def test_every_name_is_safe(word: str) -> None:
    name = safe_name(word)
    assert 1 <= len(name) <= 40
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


@pytest.mark.parametrize(
    ("name", "kind"), [("a.png", "PNG"), ("a.JPG", "JPEG"), ("a.webp", "WEBP")]
)
def test_format_follows_the_name(tmp_path: Path, name: str, kind: str) -> None:
    save_picture(tmp_path / name, Image.new("RGB", (5, 4), "red"))
    with Image.open(tmp_path / name) as written:
        assert written.format == kind
        assert written.size == (5, 4)


def test_room_loads_neither_torch_nor_matplotlib() -> None:
    code = "from captioner.render import alignment, animation, page, panels"
    assert imported(code, "torch", "matplotlib", "torchvision") == []
