"""What the text room refuses, and how it says so."""

from typing import Any

import pytest

from captioner.errors import UserError
from captioner.text import SubwordVocabulary, Vocabulary, WordVocabulary
from captioner.text.languages import language_tag

SPECIAL = ["<pad>", "<start>", "<end>", "<unk>"]


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Vocabulary, [], 'is not an object with a list "words"'),
        (WordVocabulary, {"words": {"a": 4}}, 'is not an object with a list "words"'),
        (Vocabulary, {"words": ["a"]}, "does not begin with the words <pad>"),
        (Vocabulary, {"words": [*SPECIAL, "a", "b", "a"]}, "'a' twice, at 4 and at 6"),
        (Vocabulary, {"words": [*SPECIAL, "a", 7]}, "word 5 .* is 7, which is no word"),
        (Vocabulary, {"words": [*SPECIAL, "<end>"]}, "'<end>', which is no word"),
        (WordVocabulary, {"words": [*SPECIAL, ""]}, "'', which is no word"),
        (Vocabulary, {"words": [*SPECIAL, "\ud800"]}, "which is no word"),
        (WordVocabulary, {"case": "odd", "words": SPECIAL}, "case 'odd' of words is not one of"),
        (SubwordVocabulary, [], 'no "model" in base64'),
        (SubwordVocabulary, {"model": "??"}, 'no "model" in base64'),
        (SubwordVocabulary, {"model": 3}, 'no "model" in base64'),
        (SubwordVocabulary, {"case": "keep", "model": "aaaa"}, "model is damaged"),
        (SubwordVocabulary, {"case": "UP", "model": "aaaa"}, "case 'UP' of subwords"),
    ],
)
def test_vocabularies(kind: Any, value: object, message: str) -> None:
    with pytest.raises(UserError, match=f"^v.json .*{message}"):
        kind.from_json(value, "v.json")


def test_subwords_that_cannot_be_learned() -> None:
    texts = ["A man walks.", "Ein Hund."] * 3
    letters = 4 + 256 + len(set("".join(texts)) - {" "}) + 1
    message = "cannot learn 100 subwords from this text: special tokens, bytes and letters "
    with pytest.raises(UserError, match=f"{message}alone are {letters}; set text.size$"):
        SubwordVocabulary.learn(texts, 100)
    assert len(SubwordVocabulary.learn(texts, letters)) == letters
    with pytest.raises(UserError, match="no text to learn subwords from"):
        SubwordVocabulary.learn(["", " "])


@pytest.mark.parametrize("text", ["", "d", "french", "de_DE", "de-"])
def test_language_tags(text: str) -> None:
    with pytest.raises(UserError, match=r"--language .* is not a language tag such as de or pt-BR"):
        language_tag(text, "--language")
