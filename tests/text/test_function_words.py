"""Function words in three languages."""

from __future__ import annotations

import pytest

from captioner.text.languages import is_function_word


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
