from __future__ import annotations

from pathlib import Path

import pytest

from captioner.data.collector import CaptionCollector, image_folder
from captioner.data.records import CaptionedImage
from captioner.data.source_problems import OnProblem
from captioner.errors import UserError


def collector() -> CaptionCollector:
    return CaptionCollector("source", "skip", check_files=False)


def test_captions_are_kept_in_order_with_their_image() -> None:
    collected = collector()
    assert collected.add_image("a", Path("a.jpg"), "image a")
    assert collected.add_image("b", Path("b.jpg"), "image b")
    collected.add_caption("b", " A cat. ", "1", tokens=["a", "cat"])
    collected.add_caption("a", "A dog", "2")
    collected.add_caption("b", "It", "3", tokens=["it"])
    result = collected.finish()
    assert result.images == [
        CaptionedImage("a", Path("a.jpg"), ("A dog",)),
        CaptionedImage("b", Path("b.jpg"), ("A cat.", "It"), (("a", "cat"), ("it",))),
    ]
    assert len(result.problems) == 0


def test_tokens_are_left_out_unless_every_caption_has_them() -> None:
    collected = collector()
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
    expected = [
        ("duplicate image", "second image a"),
        ("duplicate image", "image c"),
        ("duplicate caption", "caption 2"),
        ("empty caption", "caption 3"),
        ("empty caption", "caption 4"),
        ("empty caption", "caption 5"),
        ("caption of invalid Unicode", "caption 6"),
        ("caption without an image", "caption 7"),
        ("image in two splits", "image a later"),
        ("image without captions", "image bare"),
        ("missing image", "image gone"),
    ]
    found = [(kind, each) for kind, its in result.problems.kinds.items() for each in its]
    for (kind, sentence), (expected_kind, record) in zip(found, expected, strict=True):
        assert kind == expected_kind
        assert sentence.startswith(record)


def test_refuse_names_the_file_that_is_missing(tmp_path: Path) -> None:
    collected = CaptionCollector("source", "refuse", check_files=True)
    collected.add_image("a", tmp_path / "a.jpg", "image a")
    collected.add_caption("a", "words", "caption 1")
    with pytest.raises(
        UserError, match=r"source has 1 missing image \(image a has no file .*a.jpg"
    ):
        collected.finish()


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


def test_image_folder_is_the_first_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "val2017").mkdir()
    assert image_folder(tmp_path, None, "train2017", "val2017") == tmp_path / "val2017"
    assert image_folder(tmp_path, "train2017", None) == tmp_path
