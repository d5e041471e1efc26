from pathlib import Path

import pytest

from captioner.data.example import Collector, Example, OnProblem, Problems
from captioner.errors import UserError


def test_every_problem_is_named_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    (tmp_path / "b.jpg").touch()
    collected = Collector(Problems("skip", "source"))
    collected.add_image("a", tmp_path / "a.jpg", "image a")
    assert not collected.add_image("a", tmp_path / "b.jpg", "second image a")
    collected.add_image("bare", tmp_path / "b.jpg", "image bare")
    collected.add_image("gone", tmp_path / "gone.jpg", "image gone")
    collected.add_caption("a", "kept", "caption 1")
    collected.add_caption("a", " \n", "caption 3")
    collected.add_caption("a", " ... ", "caption 4")
    collected.add_caption("a", "words", "caption 5", tokens=[])
    collected.add_caption("a", "half \ud83d", "caption 6")
    collected.add_caption("nobody", "words", "caption 7")
    collected.add_caption("gone", "words", "caption 8")
    assert collected.is_in_split("a", "train", "image a")
    assert not collected.is_in_split("a", "val", "image a later")
    result = collected.examples()
    assert [(image.image_id, image.captions) for image in result] == [("a", ("kept",))]
    expected = {
        "duplicate image": ["second image a is"],
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
    collected = Collector(Problems(on_problem, "source"))
    for name in ("a", "b"):
        collected.add_image(name, tmp_path / name, name)
    sentence = r"source: none of its 2 photos exists, the first would be .*a; give their folder"
    with pytest.raises(UserError, match=sentence):
        collected.examples()


def test_names_that_no_file_can_have_are_missing_images(tmp_path: Path) -> None:
    collected = Collector(Problems("skip", "source"))
    collected.add_image("there", Path(__file__), "without captions")
    for name in ("nul\0", "long" * 1000, "half\ud800"):
        collected.add_image(name, Path(name), name)
    with pytest.raises(UserError, match=r"no image with a caption is left of source: .*3 missing"):
        collected.examples()


def test_words_are_those_of_the_source_or_else_of_the_tokeniser() -> None:
    assert Example(7, Path("a.jpg"), ("A Dog.",)).words == [["a", "dog"]]
    example = Example(7, Path("a.jpg"), ("A Dog.",), (("A", "Dog."),))
    assert example.words == [["A", "Dog."]]
    assert example.name == "7"
    partly = Collector(Problems(), check_files=False)
    partly.add_image("a", Path("a.jpg"), "image a")
    partly.add_caption("a", "one", "1", tokens=["One"])
    partly.add_caption("a", "two", "2")
    assert partly.examples()[0].words == [["one"], ["two"]]


def test_problems_are_counted_in_one_sentence_with_the_first_few() -> None:
    for on_problem in ("refuse", "skip"):
        problems = Problems(on_problem, "table t.csv")
        problems.settle()
        assert problems.summary() == "table t.csv: nothing left out"
        for line in range(2, 14):
            problems.add("row without a split", f"line {line} has none")
        problems.add("missing image", "image \ud800 has no file")
        assert len(problems) == 13
        listed = "".join(f"line {line} has none; " for line in range(2, 12))
        listed = (
            f"12 rows without a split ({listed}and 2 more), "
            "1 missing image (image \\ud800 has no file)"
        )
        assert problems.summary() == f"table t.csv: left out {listed}"
    problems.settle()  # Skipped.
    problems.on_problem = "refuse"
    with pytest.raises(UserError) as caught:
        problems.settle()
    advice = "--on-problem skip, in training --set data.on_problem=skip, leaves them out"
    assert str(caught.value) == f"table t.csv has {listed} ({advice})"
