from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.text.plain_text import as_sentence


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("A MAN IS PLAYING THE GUITAR.", "A man is playing the guitar."),
        ('  "TWO  DOGS," 3 CATS', '"Two dogs," 3 cats'),
        ("EIN MÄDCHEN LÄUFT", "Ein mädchen läuft"),
        ("STOP!", "Stop!"),
        ("3 DOGS", "3 Dogs"),
    ],
)
@pytest.mark.parametrize("capitals", ["lines", "titles"])
def test_lines_all_in_capitals(line: str, sentence: str, capitals: str) -> None:
    assert as_sentence(line, capitals) == (sentence, True)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("A Man Is Playing The Guitar.", "A man is playing the guitar."),
        ("A Man Sits on a Wall Near the House", "A man sits on a wall near the house"),
        ("Two Dogs Running", "Two dogs running"),
        ("A Man's Hat, in NYC", "A man's hat, in NYC"),
        ('"Un Jeune E\u0301colier"', '"Un jeune \u00e9colier"'),
    ],
)
def test_titles(line: str, sentence: str) -> None:
    assert as_sentence(line, "titles") == (sentence, False)
    assert as_sentence(line, "lines") == (line, False)


@pytest.mark.parametrize(
    "line",
    [
        "A man is playing the guitar.",
        "John Smith lives in New York City.",
        "A man in a US ARMY shirt.",
        "Two Dogs.",
        "BBC",
        "BBC 2",
        "1 2 3",
        "山 日 水 木",
        "",
    ],
)
def test_other_lines_stay(line: str) -> None:
    assert as_sentence(line, "titles") == (line, False)


@given(text=st.text() | st.text("AbÉß İǅ'.1"))
def test_any_text_is_read(text: str) -> None:
    assert as_sentence(text, "keep") == (text, False)
    assert as_sentence(text, "titles")[0].split() or not text.split()
