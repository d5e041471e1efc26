from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from captioner.text.tokenizer import tokenize

PUNCTUATION = [
    *["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-"],
    *[".", "?", "!", ",", ":", "-", "--", "...", ";", "(", ")", "[", "]", "{", "}", '"'],
]


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A dog runs .", "a dog runs"),
        ("A dog runs.", "a dog runs"),
        ("A man's dog doesn't run!", "a man 's dog does n't run"),
        (
            "Two (2) t-shirts, [red] and {blue}; look: there",
            "two 2 t-shirts red and blue look there",
        ),
        ('The sign says "Stop" -- really ...', "the sign says stop really"),
        ("Dogs & cats cost $5.50 at 3:15", "dogs & cats cost $ 5.50 at 3:15"),
        ("They cannot\nswim\tfar", "they can not swim far"),
        ("\u201cA dog\u2019s bone\u201d \u2014 big\u2026", "a dog 's bone big"),
        ("a -LRB- small -RRB- dog", "a small dog"),
        ("cafe\u0301 CAF\u00c9", "caf\u00e9 caf\u00e9"),
        ("red,,blue ::green at a table..", "red blue green at a table"),
        ("Mr. T. of the U.S. watches t.v. here", "mr. t. of the u.s. watches t.v. here"),
        ("", ""),
        (" . ' -- !", ""),
    ],
)
def test_worked_examples(caption: str, words: str) -> None:
    assert tokenize(caption) == words.split()


@pytest.mark.parametrize("sign", PUNCTUATION)
def test_punctuation_that_the_coco_evaluation_leaves_out_is_dropped(sign: str) -> None:
    assert tokenize(f"a dog {sign} runs") == ["a", "dog", "runs"]


@settings(deadline=None)
@given(st.text())
def test_any_text_gives_clean_words(caption: str) -> None:
    for word in tokenize(caption):
        assert word
        assert not any(character.isspace() for character in word)
        assert word == word.lower()
        assert word == unicodedata.normalize("NFC", word)
        assert word.upper() not in PUNCTUATION


@settings(deadline=None)
@given(st.text(st.characters(categories=["Cs", "Cc", "Ll"], include_characters="'\"`.-()")))
def test_text_that_is_not_valid_unicode_is_accepted(caption: str) -> None:
    assert isinstance(tokenize(caption), list)


@settings(deadline=None)
@given(st.text("abcnotgAZ \n,!?;()[]"))
def test_words_joined_by_spaces_are_the_same_words_again(caption: str) -> None:
    words = tokenize(caption)
    assert tokenize(" ".join(words)) == words


@settings(deadline=None)
@given(st.text())
def test_composed_and_decomposed_spelling_give_the_same_words(caption: str) -> None:
    composed = unicodedata.normalize("NFC", caption)
    assert tokenize(unicodedata.normalize("NFD", composed)) == tokenize(composed)
