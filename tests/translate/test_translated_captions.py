"""Translated captions: each word's map is its alignment times the maps of the caption's words."""

from dataclasses import replace

import numpy as np
import pytest

from captioner.caption.caption import Caption
from captioner.loading import LANGUAGES, load_translator
from captioner.outcomes import Failed
from captioner.text.sentences import Word
from captioner.translate.translated_captions import translate_captions
from captioner.translate.translation import Translation

WORDS = ("a", "man", "'s", "dog")


def caption(words: tuple[str, ...] = WORDS, text: str = "a man's dog") -> Caption:
    """The map of word n is all on cell n of 2x2."""
    attention = np.eye(4, dtype=np.float32)[: len(words)].reshape(-1, 2, 2)
    terms = (-0.5,) * len(words)
    caption = Caption(text, words, -2.5, terms, attention, score=-1.5, confidence=0.4, sure=True)
    return replace(caption, keywords=("man", "dog"))


MANS_DOG = caption()


def translated(
    text: str,
    target: list[Word],
    weights: list[list[float]],
    source: str,
    english: Caption = MANS_DOG,
) -> Caption:
    """The English caption by a translator that reads and writes these words."""
    tokens = tuple(str(n) for word in target for n in range(word.size))
    terms = tuple(-float(n + 1) for n in range(len(tokens)))
    read = tuple(Word(word, 1) for word in (*source.split(), "<end>"))
    alignment, names = np.array(weights), tuple(word.text for word in read)
    log_probability, words = sum(terms) - 0.5, tuple(target)
    given = Translation(
        text, names, tokens, log_probability, terms, alignment, read, words, sure=False
    )

    class Fixed:
        attends = True

        def translate(self, sentences: list[str]) -> list[Translation]:
            assert sentences == [f"A{english.text[1:]}"]  # Begins as a sentence.
            return [given]

    (found,) = translate_captions([english], Fixed(), "de")  # type: ignore[call-overload]
    return found


def test_a_map_is_the_alignment_times_the_maps() -> None:
    target = [Word("Der", 1), Word("Hund", 2), Word(",", 1), Word("Manns", 1), Word(".", 1)]
    weights = [
        [0.25, 0.0, 0.0, 0.0, 0.25, 0.0, 0.5],  # Half of it to the end: dropped.
        [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        [0.8, 0.0, 0.0, 0.0, 0.2, 0.0, 0.0],
        [0.9, 0.0, 0.0, 0.0, 0.0, 0.1, 0.0],  # The comma's, which has no map.
        [0.0, 0.5, 0.1, 0.25, 0.0, 0.15, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
    ]
    found = translated("Der Hund, Manns.", target, weights, "a man ' s dog .")
    assert (found.text, found.words) == ("Der Hund, Manns", ("Der", "Hund,", "Manns"))
    assert found.keywords == ("Manns", "Hund")
    expected = np.array([[0.5, 0.0, 0.0, 0.5], [0.4, 0.0, 0.0, 0.6], [0, 2 / 3, 1 / 3, 0.0]])
    np.testing.assert_allclose(found.attention, expected.reshape(3, 2, 2), rtol=1e-5)
    assert (found.word_log_probabilities, found.log_probability) == ((-1.0, -5.0, -5.0), -21.5)
    # The translation's seven terms have a mean of -21.5 / 7: it is not sure.
    assert (found.score, found.confidence, found.sure) == (-1.5, 0.4, False)
    assert found.original == caption()
    (again,) = translate_captions([replace(found, name="p.jpg")], object(), "en")  # type: ignore[call-overload]
    assert (again, again.name) == (caption(), "p.jpg")
    plain = found.to_dict()
    assert (plain["language"], plain["original"]["caption"]) == ("de", "a man's dog")


def test_a_compound_is_translated_by_its_last_word() -> None:
    whole = caption(("a", "fire", "hydrant"), "a fire hydrant")
    found = translated(
        "Ein Hydrant",
        [Word("Ein", 1), Word("Hydrant", 1)],
        [[1.0, 0.0, 0.0, 0.0], [0.0, 0.4, 0.6, 0.0]],
        "a fire hydrant",
        replace(whole, keywords=("fire hydrant",)),
    )
    assert found.keywords == ("Hydrant",)


PARTS = [[1.0, 0, 0, 0], [0, 0, 0, 1.0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]]


@pytest.mark.parametrize(
    ("text", "target", "weights", "maps"),
    [
        # Stray weights do not count: "Holz" is "man's", as the caption's two words.
        ("Holz", "Holz", [[0.2, 0.7, 0.1, 0.0]], [[0.0, 0.75, 0.25, 0.0]]),
        # A word aligned to the end alone has the mean map.
        ("Ja", "Ja", [[0.0, 0.0, 0.0, 1.0]], [[0.25] * 4]),
        # Words of two parts, and of signs.
        ("Tee-Shirt &", "Tee - Shirt &", PARTS, [[3 / 8, 0, 0, 5 / 8], [0.25] * 4]),
    ],
)
def test_maps_by_hand(
    text: str, target: str, weights: list[list[float]], maps: list[list[float]]
) -> None:
    written = [Word(word, 1) for word in target.split()]
    found = translated(text, written, weights, "a man's dog")
    assert found.words == tuple(text.split())
    np.testing.assert_allclose(found.attention, np.reshape(maps, (-1, 2, 2)), rtol=1e-5)


OTHER = caption(("a", "brown", "dog"), "a brown dog")


@pytest.mark.parametrize(
    ("language", "words", "places"),
    [("de", ("Ein", "brauner", "Hund"), [1, 2]), ("fr", ("Un", "chien", "brun"), [2, 1])],
)
def test_the_packaged_translators_give_maps_that_sum_to_one(
    language: str, words: tuple[str, ...], places: list[int]
) -> None:
    translator = load_translator(LANGUAGES[language], precision="float32")
    english, failed = replace(caption(), alternatives=(OTHER,)), Failed("b.jpg", "b.jpg is empty")
    given = [english, caption((), ""), failed, OTHER]
    first, empty, kept, last = found = translate_captions(given, translator, language.upper())
    assert (first.alternatives, first.original) == ((last,), caption())
    assert (empty.words, kept, last.words) == ((), failed, words)
    looked = last.attention.reshape(-1, 4).argmax(axis=1)
    assert looked.tolist()[1:] == places
    for each in (first, last):
        assert len(each.words) == len(each.word_log_probabilities)
        np.testing.assert_allclose(each.attention.sum(axis=(1, 2)), 1, rtol=1e-5)
    # What is translated is translated from its original; one gives one.
    assert translate_captions(found, translator, language) == found
    assert translate_captions(iter(found), translator, "EN") == given
    again = translate_captions(
        first.of_photo("photo.jpg", (0, 0, 4, 4), "photo.jpg"), translator, language
    )
    assert (again.text, again.photo, again.region) == (first.text, "photo.jpg", (0, 0, 4, 4))
