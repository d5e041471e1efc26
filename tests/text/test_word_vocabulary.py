from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.text.plain_text import plain_text
from captioner.text.vocabulary import WordVocabulary, capitalise, join_words, split_words

LIKE_TEXT = st.text() | st.text("aB'’é\u0301l. ,-?\"(ß1") | st.text(" \u2581\uffed\ud800\0x")


def there_and_back(vocabulary: WordVocabulary, text: str) -> str:
    """A text by way of the indices of its tokens."""
    return vocabulary.join(vocabulary.tokens(vocabulary.indices(vocabulary.split(text))))


TEXTS = [
    "The man's dog isn't here, is it?",
    "Der Hund spielt mit dem Ball.",
    "L'homme qu'il voit aujourd'hui a dit: « Bonjour! »",
    "Er sieht den Mann. Der Mann (alt) sieht ihn.",
]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Look!", ["Look", "￭!"]),
        ("the man's dog", ["the", "man", "￭'s", "dog"]),
        ("isn't", ["isn", "￭'t"]),
        ("l'homme qu’il", ["l'￭", "homme", "qu’￭", "il"]),
        ("aujourd'hui", ["aujourd", "￭'￭", "hui"]),
        ("T-Shirt", ["T", "￭-￭", "Shirt"]),
        ("(a b)", ["(￭", "a", "b", "￭)"]),
        ('says "no".', ["says", '"￭', "no", '￭"', "￭."]),
        ("12,5 % ...", ["12", "￭,￭", "5", "%", ".", "￭.", "￭."]),
        ("नमस्ते, दुनिया", ["नमस्ते", "￭,", "दुनिया"]),
        ("สวัสดี!", ["สวัสดี", "￭!"]),
        ("שָׁלוֹם", ["שָׁלוֹם"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("", []),
    ],
)
def test_words_and_signs(text: str, tokens: list[str]) -> None:
    assert split_words(text) == tokens
    assert join_words(tokens) == text


@given(LIKE_TEXT)
def test_what_is_cut_is_put_together_again(text: str) -> None:
    plain = plain_text(text)
    assert join_words(split_words(plain)) == plain


@given(LIKE_TEXT)
def test_plain_text_is_plain(text: str) -> None:
    for case in ("keep", "lower"):
        plain = plain_text(text, case)
        assert plain_text(plain, case) == plain
        assert unicodedata.is_normalized("NFC", plain)
        assert plain.split(" ") == plain.split() or plain == ""
        plain.encode()


@given(st.lists(LIKE_TEXT, max_size=4), st.sampled_from(["keep", "lower", "sentence"]))
def test_known_words_come_back(texts: list[str], case: str) -> None:
    vocabulary = WordVocabulary.learn(texts, minimum_count=1, case=case)
    for text in texts:
        expected = plain_text(text, "lower" if case == "lower" else "keep")
        expected = capitalise(expected) if case == "sentence" else expected
        found = there_and_back(vocabulary, text)
        # A special word in the text, such as "<unk>", is cut into signs and comes back as well.
        assert found == expected


def test_plain_text_by_example() -> None:
    assert plain_text("  A\tman \n\u00a0runs ") == "A man runs"
    assert plain_text("e\u0301 ÀB", "lower") == "é àb"
    assert plain_text("a\u2581b \uffed \ud800") == "a b \u25a0 \ufffd"


def test_the_first_word_of_a_sentence_is_a_word_like_others() -> None:
    vocabulary = WordVocabulary.learn([*TEXTS, "Hans sieht der Frau zu"], 1)
    words = vocabulary.vocabulary
    assert "der" in words
    assert "Hans" in words
    assert "hans" not in words
    assert vocabulary.split("Der Mann sieht")[0] == "der"
    assert vocabulary.split("Hans sieht")[0] == "Hans"
    assert vocabulary.split("Spielt der Hund")[0] == "spielt"
    assert there_and_back(vocabulary, "der Hans sieht Der Hund") == (
        "Der Hans sieht <unk> Hund" if "Der" not in words else "Der Hans sieht Der Hund"
    )


def test_unknown_words_and_special_ones() -> None:
    vocabulary = WordVocabulary.learn(TEXTS, 1, "keep")
    assert vocabulary.indices(["Xylophon", "Hund"])[0] == 3
    assert vocabulary.tokens([3, 2]) == ["<unk>", "<end>"]
    assert there_and_back(vocabulary, "Der Xylophon.") == "Der <unk>."
    assert 2 not in vocabulary.indices(vocabulary.split("<end>"))
