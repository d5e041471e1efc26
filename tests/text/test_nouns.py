from __future__ import annotations

import pytest

from captioner.text.languages import nouns
from captioner.text.tokenizer import tokenize


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A brown dog runs through the tall grass.", ["dog", "grass"]),
        ("Two men are sitting on a bench in front of a red building", ["men", "bench", "building"]),
        ("a man's dog and a man", ["man", "dog"]),
        ("a girl in a t-shirt on 2 skis", ["girl", "t-shirt", "skis"]),
        ("a bed covered with a teddy bear", ["bed", "teddy", "bear"]),
        ("it is very dark", []),
    ],
)
def test_nouns_of_a_caption(caption: str, expected: list[str]) -> None:
    assert nouns(tokenize(caption)) == expected
