"""Language tags, function words and nouns."""

import pytest

from captioner.text.languages import is_function_word, language_tag, nouns
from captioner.text.tokenizer import tokenize


@pytest.mark.parametrize("tag", ["de", "und", "pt-BR", "zh-Hant-TW", "sl-rozaj-1994"])
def test_a_tag_has_its_usual_case(tag: str) -> None:
    for text in (tag, tag.lower(), tag.upper()):
        assert language_tag(text, "--language") == tag


@pytest.mark.parametrize(
    ("language", "caption", "content"),
    [
        ("en", "A man 's dog is running in front of the red house", "man dog running red house"),
        ("de", "Ein Hund, der auf dem Gras liegt, und eine Frau.", "Hund, Gras liegt, Frau."),
        ("de-AT", "Zwei Männer stehen am Strand", "Zwei Männer stehen Strand"),
        (
            "fr",
            "Un homme d'une équipe qu'il y a près de l'eau, à côté d’un chien.",
            "homme équipe l'eau, chien.",
        ),
        ("it", "Un uomo e il suo cane", "Un uomo e il suo cane"),
    ],
)
def test_function_words_are_those_of_the_language(
    language: str, caption: str, content: str
) -> None:
    kept = [word for word in caption.split() if not is_function_word(word, language)]
    assert kept == content.split()


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
