"""Vocabularies of words, and the batches of their indices."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from captioner.errors import UserError
from captioner.text.plain_text import plain_text
from captioner.text.token_batches import TranslationBatch, collate_sources
from captioner.text.vocabulary import (
    SPECIAL_WORDS,
    Vocabulary,
    WordVocabulary,
    capitalise,
    join_words,
    split_words,
)

CAPTIONS = [["b", "a", "dog"], ["a", "cat"], ["a", "b", "dog"], ["zebra"]]


def test_words_are_ordered_by_count_and_then_alphabetically() -> None:
    words = ("a", "b", "dog", "cat", "zebra")
    assert Vocabulary.build(CAPTIONS, minimum_count=1).words == (*SPECIAL_WORDS, *words)
    assert Vocabulary.build(CAPTIONS, minimum_count=2).words[4:] == words[:3]
    assert Vocabulary.build([["x"] * 4, ["y"] * 5]).words[4:] == ("y",)
    extended = Vocabulary(["dog", "cow"]).extended([*CAPTIONS, ["<end>", "<end>"]], 2)
    assert extended.words[4:] == ("dog", "cow", "a", "b")
    assert extended.extended(CAPTIONS, 3) == extended
    assert extended.extends(Vocabulary(["dog", "cow"]))
    assert not extended.extends(Vocabulary(["cow", "dog"]))


def test_encode_and_decode() -> None:
    vocabulary = Vocabulary.build([["a", "dog", "<end>", "<pad>", "<start>", "<unk>"]], 1)
    assert vocabulary.words == (*SPECIAL_WORDS, "a", "dog")
    assert vocabulary.encode(["a", "cat", "dog", "<end>", "<pad>"]) == [4, 3, 5, 3, 3]
    assert vocabulary.decode([1, 4, 3, 0, 5, 2, 4]) == ["a", "<unk>", "dog"]
    assert vocabulary.decode([4, 5]) == ["a", "dog"]
    assert "<end>" not in vocabulary
    assert "a" in vocabulary
    assert repr(vocabulary) == "Vocabulary(6 words)"


def test_save_and_load(tmp_path: Path) -> None:
    vocabulary = Vocabulary(["a", "caf\u00e9", 'say "x"', "\u2028"])
    vocabulary.save(tmp_path / "model" / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "model" / "vocabulary.json") == vocabulary
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["vocabulary.json"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["words", "x"]), inner),
)


@given(JSON | st.lists(JSON).map(lambda words: {"words": [*SPECIAL_WORDS, *words]}))
def test_any_json_is_a_vocabulary_or_refused(value: Any) -> None:
    try:
        vocabulary = Vocabulary.from_json(value)
    except UserError:
        return
    assert json.loads(json.dumps(vocabulary.to_json())) == value
    assert vocabulary.decode(vocabulary.encode(value["words"][4:])) == value["words"][4:]


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


LIKE_TEXT = st.text() | st.text("aB'’é\u0301l. ,-?\"(ß1") | st.text(" \u2581\uffed\ud800\0x")


def test_a_joiner_on_both_sides_of_a_gap_joins_once() -> None:
    assert join_words(["a￭", "￭b", "c", "￭"]) == "ab c"


def there_and_back(vocabulary: WordVocabulary, text: str) -> str:
    """A text by way of the indices of its tokens."""
    return vocabulary.join(vocabulary.tokens(vocabulary.indices(vocabulary.split(text))))


@given(st.lists(LIKE_TEXT, max_size=4), st.sampled_from(["keep", "lower", "sentence"]))
def test_known_words_come_back(texts: list[str], case: str) -> None:
    vocabulary = WordVocabulary.learn(texts, minimum_count=1, case=case)
    for text in texts:
        expected = plain_text(text, case)
        expected = capitalise(expected) if case == "sentence" else expected
        # A special word in the text, such as "<unk>", is cut into signs and comes back as well.
        assert there_and_back(vocabulary, text) == expected


TEXTS = [
    "The man's dog isn't here, is it?",
    "Der Hund spielt mit dem Ball.",
    "L'homme qu'il voit aujourd'hui a dit: « Bonjour! »",
    "Er sieht den Mann. Der Mann (alt) sieht ihn.",
]


def test_the_first_word_of_a_sentence_is_a_word_like_others() -> None:
    vocabulary = WordVocabulary.learn([*TEXTS, "Hans sieht der Frau zu"], 1)
    assert "der" in vocabulary.vocabulary
    assert "hans" not in vocabulary.vocabulary
    assert vocabulary.split("Der Mann sieht")[0] == "der"
    assert vocabulary.split("Hans sieht")[0] == "Hans"
    assert vocabulary.split("Spielt der Hund")[0] == "spielt"
    assert there_and_back(vocabulary, "der Hans sieht Der Hund") == "Der Hans sieht Der Hund"


def test_unknown_words_and_special_ones() -> None:
    vocabulary = WordVocabulary.learn(TEXTS, 1, "keep")
    assert vocabulary.tokens([3, 2]) == ["<unk>", "<end>"]
    assert there_and_back(vocabulary, "Der Xylophon.") == "Der <unk>."
    assert 2 not in vocabulary.indices(vocabulary.split("<end>"))


def test_a_batch_moves_but_for_the_mask_of_its_sources() -> None:
    source, mask = collate_sources([[4, 5], [6]])
    assert source.tolist() == [[4, 5, 2], [6, 2, 0]]
    assert mask.tolist() == [[True] * 3, [True, True, False]]
    moved = TranslationBatch(source, mask, source, source, mask).to("meta")
    places = [tensor.device.type for tensor in moved]
    assert places == ["meta", "cpu", "meta", "meta", "meta"]  # Lengths are read from the mask.
    assert torch.equal(moved.source_mask, mask)
