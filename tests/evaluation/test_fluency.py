"""Fluency of captions."""

from __future__ import annotations

from pathlib import Path

import pytest

from captioner.errors import UserError
from captioner.evaluation.scorer import Scorer
from captioner.evaluation.wording import fluency
from captioner.text.ngrams import PeoplesNgrams


def test_fluency_by_hand() -> None:
    lines = ("a dog runs", "a dog runs away", "the dog runs", "a cat sits", "the cat")
    people = PeoplesNgrams(text.split() for text in lines)
    captions = [
        text.split() for text in ("the dog runs away", "a cat runs", "a dog runs", "the cat")
    ]
    references = [[["a", "cat", "sits"]], [["a", "dog"], ["a", "dog", "runs", "away"]], [], []]
    scores = fluency(captions, references, people)
    # Nobody wrote "cat runs"; of the references nobody else wrote "a cat sits", nor "a dog <end>".
    assert scores["fluent"] == 3 / 4
    assert scores["people_fluent"] == 0
    mean = sum(map(people.log_probability, captions)) / 4
    assert scores["log_probability"] == pytest.approx(mean)
    assert scores["misplaced_articles"] == scores["people_misplaced_articles"] == 0


def test_a_file_without_captions_is_refused_before_anything_is_scored(tmp_path: Path) -> None:
    file = tmp_path / "people.txt"
    file.write_text("\n \n", encoding="utf-8")
    with pytest.raises(UserError, match=r"people\.txt has no captions; give people's captions"):
        Scorer(fluency=file)
    with pytest.raises(UserError, match=r"gone\.txt"):
        Scorer(fluency=tmp_path / "gone.txt")
