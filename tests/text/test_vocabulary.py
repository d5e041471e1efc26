from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from captioner.errors import UserError
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary

CAPTIONS = [["b", "a", "dog"], ["a", "cat"], ["a", "b", "dog"], ["zebra"]]


def test_words_are_ordered_by_count_and_then_alphabetically() -> None:
    vocabulary = Vocabulary.build(CAPTIONS, minimum_count=1)
    assert vocabulary.words == (*SPECIAL_WORDS, "a", "b", "dog", "cat", "zebra")
    assert len(vocabulary) == 9


def test_minimum_count_keeps_words_that_occur_so_often() -> None:
    assert Vocabulary.build(CAPTIONS, minimum_count=2).words[4:] == ("a", "b", "dog")
    assert Vocabulary.build(CAPTIONS, minimum_count=3).words[4:] == ("a",)
    assert Vocabulary.build([["x"] * 4, ["y"] * 5]).words[4:] == ("y",)


def test_new_words_follow_those_that_were_there() -> None:
    vocabulary = Vocabulary(["dog", "cow"]).extended([*CAPTIONS, ["<end>", "<end>"]], 2)
    assert vocabulary.words[4:] == ("dog", "cow", "a", "b")
    assert vocabulary.extended(CAPTIONS, 3) == vocabulary


def test_encode_and_decode() -> None:
    vocabulary = Vocabulary(["a", "dog"])
    assert vocabulary.encode(["a", "cat", "dog"]) == [4, 3, 5]
    assert vocabulary.decode([1, 4, 3, 0, 5, 2, 4]) == ["a", "<unk>", "dog"]
    assert vocabulary.decode([4, 5]) == ["a", "dog"]


def test_special_words_in_a_corpus_are_unknown_words() -> None:
    corpus = [["a", "<end>", "<pad>", "<start>", "<unk>"]] * 9
    vocabulary = Vocabulary.build(corpus, minimum_count=1)
    assert vocabulary.words == (*SPECIAL_WORDS, "a")
    assert vocabulary.encode(["a", "<end>", "<pad>", "<start>"]) == [4, 3, 3, 3]
    assert "<end>" not in vocabulary
    assert "a" in vocabulary


WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.lists(WORDS.filter(lambda word: word not in SPECIAL_WORDS), unique=True))
def test_json_round_trip(words: list[str]) -> None:
    vocabulary = Vocabulary(words)
    again = Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json())))
    assert again == vocabulary
    assert again.decode(again.encode(words)) == words


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
    assert vocabulary.to_json() == value
