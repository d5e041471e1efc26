from __future__ import annotations

from pathlib import Path

import pytest

from captioner.data.collector import CaptionCollector
from captioner.data.source_problems import OnProblem
from captioner.errors import UserError


def test_tokens_are_left_out_unless_every_caption_has_them() -> None:
    collected = CaptionCollector("source", "skip", check_files=False)
    collected.add_image("a", Path("a.jpg"), "image a")
    collected.add_caption("a", "one", "1", tokens=["one"])
    collected.add_caption("a", "two", "2")
    assert collected.finish().images[0].tokens is None


def test_every_problem_is_named_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    (tmp_path / "b.jpg").touch()
    collected = CaptionCollector("source", "skip", check_files=True)
    collected.add_image("a", tmp_path / "a.jpg", "image a")
    assert not collected.add_image("a", tmp_path / "b.jpg", "second image a")
    assert not collected.add_image("c", tmp_path / "a.jpg", "image c")
    collected.add_image("bare", tmp_path / "b.jpg", "image bare")
    collected.add_image("gone", tmp_path / "gone.jpg", "image gone")
    collected.add_caption("a", "kept", "caption 1", key=1)
    collected.add_caption("a", "again", "caption 2", key=1)
    collected.add_caption("a", " \n", "caption 3", key=3)
    collected.add_caption("a", " ... ", "caption 4", key=4)
    collected.add_caption("a", "words", "caption 5", key=5, tokens=[])
    collected.add_caption("a", "half \ud83d", "caption 6", key=6)
    collected.add_caption("nobody", "words", "caption 7", key=7)
    collected.add_caption("gone", "words", "caption 8", key=8)
    assert collected.is_in_split("a", "train", "image a")
    assert not collected.is_in_split("a", "val", "image a later")
    result = collected.finish()
    assert [(image.image_id, image.captions) for image in result.images] == [("a", ("kept",))]
    expected = {
        "duplicate image": ["second image a is", "image c has"],
        "duplicate caption": ["caption 2 is"],
        "empty caption": ["caption 3 has", "caption 4 has", "caption 5 has"],
        "caption of invalid Unicode": ["caption 6 has"],
        "caption without an image": ["caption 7 is"],
        "image in two splits": ["image a later is"],
        "image without captions": ["image bare has"],
        "missing image": ["image gone has"],
    }
    for kind, sentences in result.problems.kinds.items():
        for sentence, record in zip(sentences, expected.pop(kind), strict=True):
            assert sentence.startswith(record)
    assert expected == {}


@pytest.mark.parametrize("on_problem", ["refuse", "skip"])
def test_where_no_photo_exists_the_folder_is_wrong(tmp_path: Path, on_problem: OnProblem) -> None:
    collected = CaptionCollector("source", on_problem, check_files=True)
    for name in ("a", "b"):
        collected.add_image(name, tmp_path / name, name)
    sentence = r"source: none of its 2 photos exists, the first would be .*a; give their folder"
    with pytest.raises(UserError, match=sentence):
        collected.finish()


def test_names_that_no_file_can_have_are_missing_images(tmp_path: Path) -> None:
    collected = CaptionCollector("source", "skip", check_files=True)
    collected.add_image("there", Path(__file__), "without captions")
    for name in ("nul\0", "long" * 1000, "half\ud800"):
        collected.add_image(name, Path(name), name)
    with pytest.raises(UserError, match=r"no image with a caption is left of source: .*3 missing"):
        collected.finish()
