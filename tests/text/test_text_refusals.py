"""What the text room refuses, and how it says so."""

from collections.abc import Callable
from typing import Any

import pytest

from captioner.errors import UserError
from captioner.text import SubwordVocabulary, Vocabulary
from captioner.text.languages import language_tag

SPECIAL = ["<pad>", "<start>", "<end>", "<unk>"]
TEXTS = ["A man walks.", "Ein Hund."] * 3
LETTERS = 4 + 256 + len(set("".join(TEXTS)) - {" "}) + 1


def load(kind: Any, value: object) -> Callable[[], object]:
    return lambda: kind.from_json(value, "v.json")


def words(*ordinary: object) -> dict[str, Any]:
    return {"words": [*SPECIAL, *ordinary], "case": "keep"}


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (load(Vocabulary, []), 'v.json has no "words" that begin with <pad>, <start>'),
        (load(Vocabulary, {"words": ["a"]}), 'v.json has no "words" that begin'),
        (load(Vocabulary, words("a", "b", "a")), "v.json: word 6, 'a', is no word, .* twice"),
        (load(Vocabulary, words("a", 7)), "v.json: word 5, 7, is no word"),
        (load(Vocabulary, words("<end>")), "word 4, '<end>', is no word, special"),
        (load(SubwordVocabulary, []), 'v.json has no "model" that sentencepiece can read'),
        (load(SubwordVocabulary, {"case": "keep", "model": "aaaa"}), 'no "model"'),
        (lambda: SubwordVocabulary.learn(TEXTS, 100), f"100 subwords: .* alone are {LETTERS}$"),
        (lambda: SubwordVocabulary.learn([" "]), "cannot learn text.size 8000 subwords: "),
        *(
            (lambda tag=tag: language_tag(tag, "--language"), "^--language .* is not a language")
            for tag in ("", "d", "french", "de_DE", "de-")
        ),
    ],
)
def test_sentences(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        call()
    assert len(SubwordVocabulary.learn(TEXTS, LETTERS)) == LETTERS
