from __future__ import annotations

from typing import Any

import pytest

from captioner.data.source_problems import Problems
from captioner.errors import UserError


def filled(on_problem: Any) -> Problems:
    problems = Problems("table t.csv", on_problem)
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
    nothing = Problems("table t.csv", "refuse")
    nothing.settle()
    assert nothing.summary() == "table t.csv: nothing left out"


def test_a_sentence_can_always_be_written() -> None:
    problems = Problems("s", "skip")
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
    problems = Problems("s", "skip")
    problems.add(kind, "one")
    problems.add(kind, "two")
    assert problems.summary() == f"s: left out {plural} (one; two)"
