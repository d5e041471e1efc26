"""What the text room refuses, and how it says so."""

from __future__ import annotations

import pytest

from captioner.errors import UserError
from captioner.text import SubwordVocabulary, Vocabulary, WordVocabulary
from captioner.text.languages import language_tag

SPECIAL = ["<pad>", "<start>", "<end>", "<unk>"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], 'is not an object with a list "words"'),
        ({"words": {"a": 4}}, 'is not an object with a list "words"'),
        ({"words": ["a"]}, "does not begin with the words <pad>"),
        ({"words": ["<pad>", "<end>", "<start>", "<unk>", "a"]}, "does not begin with"),
        ({"words": [*SPECIAL, "a", "b", "a"]}, "'a' twice, at 4 and at 6"),
        ({"words": [*SPECIAL, "a", 7]}, "word 5 .* is 7, which is no word"),
        ({"words": [*SPECIAL, "<end>"]}, "'<end>', which is no word"),
        ({"words": [*SPECIAL, ""]}, "'', which is no word"),
        ({"words": [*SPECIAL, "\ud800"]}, "which is no word"),
    ],
)
def test_vocabularies(value: object, message: str) -> None:
    for kind in (Vocabulary, WordVocabulary):
        with pytest.raises(UserError, match=f"^v.json .*{message}"):
            kind.from_json(value, "v.json")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"case": "keep"}, 'no "model" in base64'),
        ({"case": "keep", "model": "??"}, 'no "model" in base64'),
        ({"case": "keep", "model": "\u00e9"}, 'no "model" in base64'),
        ({"case": "keep", "model": 3}, 'no "model" in base64'),
        ({"case": "keep", "model": "aaaa"}, "model is damaged"),
        ({"case": "UP", "model": "aaaa"}, "case 'UP' of subwords"),
    ],
)
def test_subword_models(value: object, message: str) -> None:
    with pytest.raises(UserError, match=f"^v.json .*{message}"):
        SubwordVocabulary.from_json(value, "v.json")


def test_cases_of_words() -> None:
    with pytest.raises(UserError, match=r"v\.json .* case 'odd' of words is not one of"):
        WordVocabulary.from_json({"case": "odd", "words": SPECIAL}, "v.json")


def test_subwords_that_cannot_be_learned() -> None:
    texts = ["A man walks.", "Ein Hund."] * 3
    letters = 4 + 256 + len(set("".join(texts)) - {" "}) + 1
    message = "cannot learn 100 subwords from this text: special tokens, bytes and letters "
    with pytest.raises(UserError, match=f"{message}alone are {letters}; set text.size$"):
        SubwordVocabulary.learn(texts, 100)
    assert len(SubwordVocabulary.learn(texts, letters)) == letters
    with pytest.raises(UserError, match="no text to learn subwords from"):
        SubwordVocabulary.learn(["", " "])


@pytest.mark.parametrize("text", ["", "d", "french", "de_DE", "de-", "pt-BR "])
def test_language_tags(text: str) -> None:
    with pytest.raises(UserError, match=r"--language .* is not a language tag such as de or pt-BR"):
        language_tag(text, "--language")
