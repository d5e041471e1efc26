"""Text in its plain form, and lines in capitals as sentences."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.text.plain_text import as_sentence, plain_text, unescape_entities


def test_plain_text_by_example() -> None:
    assert plain_text("  A\tman \n\u00a0runs ") == "A man runs"
    assert plain_text("e\u0301 ÀB", "lower") == "é àb"
    assert plain_text("a\u2581b \uffed \ud800") == "a b \u25a0 \ufffd"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a &quot;dog&quot; &amp; a man&#39;s caf&eacute; &#x201c;", 'a "dog" & a man\'s café “'),
        ("AT&T, ?a=1&copy=2 &; &house;", "AT&T, ?a=1&copy=2 &; &house;"),
    ],
)
def test_entities_are_unescaped(text: str, expected: str) -> None:
    assert unescape_entities(text) == expected


@given(st.text() | st.text("aB'’é\u0301l. ß1\u2581\uffed\ud800\0"), st.sampled_from(["", "lower"]))
def test_plain_text_is_plain(text: str, case: str) -> None:
    plain = plain_text(text, case)
    assert plain_text(plain, case) == plain
    assert unicodedata.is_normalized("NFC", plain)
    assert plain.split(" ") == plain.split() or plain == ""
    plain.encode()


@pytest.mark.parametrize(
    ("line", "sentence", "kind"),
    [
        ("A MAN IS PLAYING THE GUITAR.", "A man is playing the guitar.", "upper"),
        ('  "TWO  DOGS," 3 CATS', '"Two dogs," 3 cats', "upper"),
        ("EIN MÄDCHEN LÄUFT", "Ein mädchen läuft", "upper"),
        ("STOP!", "Stop!", "upper"),
        ("3 DOGS", "3 Dogs", "upper"),
        ("A Man Is Playing The Guitar.", "A man is playing the guitar.", "title"),
        ("A Man Sits on a Wall Near the House", "A man sits on a wall near the house", "title"),
        ("Two Dogs Running", "Two dogs running", "title"),
        ("A Man's Hat, in NYC", "A man's hat, in NYC", "title"),
        ('"Un Jeune E\u0301colier"', '"Un jeune \u00e9colier"', "title"),
        *(
            (line, line, "")
            for line in (
                "A man is playing the guitar.",
                "John Smith lives in New York City.",
                "A man in a US ARMY shirt.",
                "Two Dogs.",
                "BBC",
                "BBC 2",
                "1 2 3",
                "山 日 水 木",
                "",
            )
        ),
    ],
)
def test_lines_in_capitals_and_titles(line: str, sentence: str, kind: str) -> None:
    is_upper = kind == "upper"
    assert as_sentence(line, "titles") == (sentence, is_upper)
    assert as_sentence(line, "lines") == (sentence if is_upper else line, is_upper)
    assert as_sentence(line, "keep") == (line, False)


@given(text=st.text() | st.text("AbÉß İǅ'.1"))
def test_any_text_is_read(text: str) -> None:
    assert as_sentence(text, "titles")[0].split() or not text.split()
