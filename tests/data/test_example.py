from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from captioner.data.example import Collector, Example, OnProblem, Problems
from captioner.errors import UserError


def test_tokens_are_left_out_unless_every_caption_has_them() -> None:
    collected = Collector(Problems("skip"), "source", check_files=False)
    collected.add_image("a", Path("a.jpg"), "image a")
    collected.add_caption("a", "one", "1", tokens=["one"])
    collected.add_caption("a", "two", "2")
    assert next(collected.examples()).tokens is None


def test_every_problem_is_named_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    (tmp_path / "b.jpg").touch()
    collected = Collector(Problems("skip"), "source", check_files=True)
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
    result = list(collected.examples())
    assert [(image.image_id, image.captions) for image in result] == [("a", ("kept",))]
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
    for kind, sentences in collected.problems.kinds.items():
        for sentence, record in zip(sentences, expected.pop(kind), strict=True):
            assert sentence.startswith(record)
    assert expected == {}


@pytest.mark.parametrize("on_problem", ["refuse", "skip"])
def test_where_no_photo_exists_the_folder_is_wrong(tmp_path: Path, on_problem: OnProblem) -> None:
    collected = Collector(Problems(on_problem), "source", check_files=True)
    for name in ("a", "b"):
        collected.add_image(name, tmp_path / name, name)
    sentence = r"source: none of its 2 photos exists, the first would be .*a; give their folder"
    with pytest.raises(UserError, match=sentence):
        list(collected.examples())


def test_names_that_no_file_can_have_are_missing_images(tmp_path: Path) -> None:
    collected = Collector(Problems("skip"), "source", check_files=True)
    collected.add_image("there", Path(__file__), "without captions")
    for name in ("nul\0", "long" * 1000, "half\ud800"):
        collected.add_image(name, Path(name), name)
    with pytest.raises(UserError, match=r"no image with a caption is left of source: .*3 missing"):
        list(collected.examples())


def test_words_are_those_of_the_source_or_else_of_the_tokeniser() -> None:
    assert Example(7, Path("a.jpg"), ("A Dog.",)).words == [["a", "dog"]]
    example = Example(7, Path("a.jpg"), ("A Dog.",), (("A", "Dog."),))
    assert example.words == [["A", "Dog."]]
    assert example.name == "7"


def filled(on_problem: Any) -> Problems:
    problems = Problems(on_problem, "table t.csv")
    for line in range(2, 14):
        problems.add("empty caption", f"line {line} has no words")
    problems.add("missing image", "image a has no file a.jpg")
    return problems


def test_refuse_ends_in_one_sentence_with_counts_and_the_first_few() -> None:
    with pytest.raises(UserError) as caught:
        filled("refuse").settle()
    assert str(caught.value) == (
        "table t.csv has 12 empty captions ("
        + "".join(f"line {line} has no words; " for line in range(2, 12))
        + "and 2 more), 1 missing image (image a has no file a.jpg) "
        "(--on-problem skip, in training --set data.on_problem=skip, leaves them out)"
    )


def test_skip_goes_on_and_tells_in_its_summary() -> None:
    problems = filled("skip")
    problems.settle()
    assert len(problems) == 13
    assert problems.summary().startswith("table t.csv: left out 12 empty captions (line 2 has")
    nothing = Problems("refuse", "table t.csv")
    nothing.settle()
    assert nothing.summary() == "table t.csv: nothing left out"


def test_a_sentence_can_always_be_written() -> None:
    problems = Problems("skip", "s")
    problems.add("missing image", "image \ud800 has no file")
    assert problems.summary().encode("utf-8") == (
        b"s: left out 1 missing image (image \\ud800 has no file)"
    )


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("row without a split", "2 rows without a split"),
        ("image without captions", "2 images without captions"),
        ("duplicate caption", "2 duplicate captions"),
    ],
)
def test_two_of_a_kind_are_in_the_plural(kind: str, plural: str) -> None:
    problems = Problems("skip", "s")
    problems.add(kind, "one")
    problems.add(kind, "two")
    assert problems.summary() == f"s: left out {plural} (one; two)"
