"""Translated captions: each word's map is its alignment times the maps of the caption's words."""

from dataclasses import replace

import pytest
import torch

from captioner.caption.caption import Caption
from captioner.models import LANGUAGES, load_translator
from captioner.outcomes import Failed
from captioner.text.vocabulary import Word
from captioner.translate.translated_captions import translate_captions
from captioner.translate.translation import Translation

END = Word("<end>", 1)
WORDS = ("a", "man", "'s", "dog")


def caption(words: tuple[str, ...] = WORDS, text: str = "a man's dog") -> Caption:
    """The map of word n is all on cell n of 2x2."""
    attention = torch.eye(4)[: len(words)].view(-1, 2, 2)
    terms = (-0.5,) * len(words)
    return Caption(text, words, -2.5, terms, attention, score=-1.5, confidence=0.4, sure=True)


def translated(translation: Translation) -> Caption:
    class Fixed:
        attends = True

        def translate(self, sentences: list[str]) -> list[Translation]:
            assert sentences == ["A man's dog"]  # Begins as a sentence.
            return [translation]

    (found,) = translate_captions([caption()], Fixed(), "de")  # type: ignore[call-overload]
    return found


def translation_of(
    target: list[Word], weights: list[list[float]], source: list[str], text: str
) -> Translation:
    tokens = tuple(str(n) for word in target for n in range(word.size))
    terms = tuple(-float(n + 1) for n in range(len(tokens)))
    source_words = (*(Word(word, 1) for word in source), END)
    return Translation(
        text,
        tuple(word.text for word in source_words),
        tokens,
        sum(terms) - 0.5,
        terms,
        torch.tensor(weights),
        source_words,
        tuple(target),
    )


def test_a_map_is_the_alignment_times_the_maps() -> None:
    source = ["a", "man", "'", "s", "dog", "."]
    target = [Word("Der", 1), Word("Hund", 2), Word(",", 1), Word("Manns", 1), Word(".", 1)]
    weights = [
        [0.25, 0.0, 0.0, 0.0, 0.25, 0.0, 0.5],  # Half of it to the end: dropped.
        [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        [0.8, 0.0, 0.0, 0.0, 0.2, 0.0, 0.0],
        [0.9, 0.0, 0.0, 0.0, 0.0, 0.1, 0.0],  # The comma's, which has no map.
        [0.0, 0.5, 0.1, 0.25, 0.0, 0.15, 0.0],
        [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
    ]
    found = translated(translation_of(target, weights, source, "Der Hund, Manns."))
    assert found.text == "Der Hund, Manns"
    assert found.words == ("Der", "Hund,", "Manns")
    expected = torch.tensor([[0.5, 0.0, 0.0, 0.5], [0.4, 0.0, 0.0, 0.6], [0, 2 / 3, 1 / 3, 0.0]])
    torch.testing.assert_close(found.attention, expected.view(3, 2, 2))
    assert found.word_log_probabilities == (-1.0, -5.0, -5.0)
    assert found.log_probability == -21.5
    assert (found.score, found.confidence, found.sure) == (-1.5, 0.4, True)
    assert found.original == caption()
    plain = found.to_dict()
    assert plain["language"] == "de"
    assert plain["original"]["caption"] == "a man's dog"
    assert "language" not in plain["original"]


@pytest.mark.parametrize(
    ("text", "target", "weights", "words", "maps"),
    [
        # Stray weights do not count: "Holz" is "man's", as the caption's two words.
        ("Holz", ["Holz"], [[0.2, 0.7, 0.1, 0.0]], ("Holz",), [[0.0, 0.75, 0.25, 0.0]]),
        # A word aligned to the end alone has the mean map.
        ("Ja", ["Ja"], [[0.0, 0.0, 0.0, 1.0]], ("Ja",), [[0.25] * 4]),
        # Words of two parts, and of signs.
        (
            "Tee-Shirt &",
            ["Tee", "-", "Shirt", "&"],
            [[1.0, 0, 0, 0], [0, 0, 0, 1.0], [0, 0, 1.0, 0], [0, 0, 0, 1.0]],
            ("Tee-Shirt", "&"),
            [[3 / 8, 0, 0, 5 / 8], [0.25] * 4],
        ),
    ],
)
def test_maps_by_hand(
    text: str,
    target: list[str],
    weights: list[list[float]],
    words: tuple[str, ...],
    maps: list[list[float]],
) -> None:
    written = [Word(word, 1) for word in target]
    found = translated(translation_of(written, weights, ["a", "man's", "dog"], text))
    assert found.words == words
    torch.testing.assert_close(found.attention, torch.tensor(maps).view(-1, 2, 2))


@pytest.mark.parametrize(
    ("language", "words", "places"),
    [("de", ("Ein", "brauner", "Hund"), [1, 2]), ("fr", ("Un", "chien", "brun"), [2, 1])],
)
def test_the_packaged_translators_give_maps_that_sum_to_one(
    language: str, words: tuple[str, ...], places: list[int]
) -> None:
    translator = load_translator(LANGUAGES[language], precision="float32")
    other = caption(("a", "brown", "dog"), "a brown dog")
    with_other = replace(caption(), alternatives=(other,))
    found = translate_captions([with_other, caption((), ""), other], translator, language)
    assert [len(each.alternatives) for each in found] == [1, 0, 0]
    assert found[0].alternatives[0] == found[2]
    assert found[0].original == caption()
    assert found[1].words == ()
    assert found[2].words == words
    looked = found[2].attention.flatten(start_dim=1).argmax(dim=1)
    assert looked.tolist()[1:] == places
    for each in (found[0], found[2]):
        assert len(each.words) == len(each.word_log_probabilities)
        sums = each.attention.sum(dim=(1, 2))
        torch.testing.assert_close(sums, torch.ones(len(each.words)))


def test_translated_and_failed_captions_are_translated_from_english_in_their_place() -> None:
    translator = load_translator(LANGUAGES["fr"], precision="float32")
    other = caption(("a", "brown", "dog"), "a brown dog")
    english = replace(caption(), alternatives=(other,))
    (french,) = translate_captions([english], translator, "FR")
    assert french.language == "fr"
    assert translate_captions([french], translator, "fr") == [french]
    assert translate_captions([french, english], translator, "EN") == [english, english]
    failed = Failed("b.jpg", "b.jpg is empty")
    for language, expected in (("fr", french), ("en", english)):
        found = translate_captions([failed, english, failed], translator, language)
        assert found == [failed, expected, failed]
        assert translate_captions(failed, translator, language) == failed
        assert translate_captions(english, translator, language) == expected
        assert translate_captions(iter([english]), translator, language) == [expected]
        placed = french.of_photo("photo.jpg", (0, 0, 4, 4))
        again = translate_captions(placed, translator, language)
        assert (again.photo, again.region) == ("photo.jpg", (0, 0, 4, 4))
