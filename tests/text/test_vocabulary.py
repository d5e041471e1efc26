"""Vocabularies of words and subwords, the batches of their indices; what the room refuses."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses
from samples import Patch

from captioner.text.languages import plain_text
from captioner.text.sentences import SubwordVocabulary, WordVocabulary, capitalise, split_words
from captioner.text.token_batches import collate_sources
from captioner.text.vocabulary import SPECIAL_WORDS, Vocabulary

CAPTIONS = [["b", "a", "dog"], ["a", "cat"], ["a", "b", "dog"], ["zebra"]]


def test_words_are_ordered_by_count_and_then_alphabetically() -> None:
    words = ("a", "b", "dog", "cat", "zebra")
    assert Vocabulary.build(CAPTIONS, minimum_count=1).words == (*SPECIAL_WORDS, *words)
    assert Vocabulary.build(CAPTIONS, minimum_count=2).words[4:] == words[:3]
    few = Vocabulary(["dog", "cow"])
    extended = few.extended([*CAPTIONS, ["<end>", "<end>"]], 2)
    assert extended.words[4:] == ("dog", "cow", "a", "b")
    assert extended.extended(CAPTIONS, 3) == extended
    assert (extended.extends(few), few.extends(extended)) == (True, False)


def test_encode_and_decode() -> None:
    vocabulary = Vocabulary.build([["a", "dog", "<end>", "<pad>", "<start>", "<unk>"]], 1)
    assert vocabulary.words == (*SPECIAL_WORDS, "a", "dog")
    assert vocabulary.encode(["a", "cat", "dog", "<end>", "<pad>"]) == [4, 3, 5, 3, 3]
    assert vocabulary.decode([1, 4, 3, 0, 5, 2, 4]) == ["a", "<unk>", "dog"]
    assert ("<end>" in vocabulary, "a" in vocabulary) == (False, True)
    assert Vocabulary.from_json(json.loads(json.dumps(vocabulary.to_json()))) == vocabulary


def test_classes_are_stored_and_new_words_are_their_own() -> None:
    vocabulary = Vocabulary(["dog", "dogs", "cat"], classes=[0, 1, 2, 3, 4, 4, 6])
    assert (
        Vocabulary.from_json(vocabulary.to_json())
        == vocabulary
        != Vocabulary(["dog", "dogs", "cat"])
    )
    assert vocabulary.extended([["owl"]], 1).classes == (0, 1, 2, 3, 4, 4, 6, 7)
    assert Vocabulary(["dog"]).extended([["owl"]], 1).classes == ()


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Look!", ["Look", "￭!"]),
        ("the man's", ["the", "man", "￭'s"]),
        ("l'homme qu’il", ["l'￭", "homme", "qu’￭", "il"]),
        ('a "T-Shirt".', ["a", '"￭', "T", "￭-￭", "Shirt", '￭"', "￭."]),
        ("नमस्ते, दुनिया", ["नमस्ते", "￭,", "दुनिया"]),
        ("สวัสดี!", ["สวัสดี", "￭!"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("", []),
    ],
)
def test_words_and_signs(text: str, tokens: list[str]) -> None:
    assert split_words(text) == tokens
    assert WordVocabulary(Vocabulary([]), "keep").join(tokens) == text


def there_and_back(vocabulary: WordVocabulary, text: str) -> str:
    """A text by way of the indices of its tokens."""
    return vocabulary.join(vocabulary.tokens(vocabulary.indices(vocabulary.split(text))))


LIKE_TEXT = st.text() | st.text("aB'’é\u0301l. ,-?\"(ß1") | st.text(" \u2581\uffed\ud800\0x")


@given(st.lists(LIKE_TEXT, max_size=4), st.sampled_from(["keep", "lower", "sentence"]))
def test_known_words_come_back(texts: list[str], case: str) -> None:
    vocabulary = WordVocabulary.learn(texts, minimum_count=1, case=case)
    for text in texts:
        expected = plain_text(text, case)
        expected = capitalise(expected) if case == "sentence" else expected
        # A special word in the text, such as "<unk>", is cut into signs and comes back as well.
        assert there_and_back(vocabulary, text) == expected


def test_the_first_word_of_a_sentence_is_a_word_like_others() -> None:
    texts = ["Der Hund spielt mit dem Ball.", "Hans sieht der Frau zu"]
    vocabulary = WordVocabulary.learn([*texts, "Er sieht den Mann. Der Mann sieht ihn."], 1)
    firsts = [vocabulary.split(text)[0] for text in ("Der Mann", "Hans sieht", "Spielt der")]
    assert firsts == ["der", "Hans", "spielt"]
    assert there_and_back(vocabulary, "der Hans sieht Der Hund") == "Der Hans sieht Der Hund"
    assert vocabulary.tokens([3, 2]) == ["<unk>", "<end>"]
    assert there_and_back(vocabulary, "Der Xylophon.") == "Der <unk>."
    assert 2 not in vocabulary.indices(vocabulary.split("<end>"))


def test_sources_end_and_are_padded() -> None:
    source, mask = collate_sources([[4, 5], [6]])
    assert source.tolist() == [[4, 5, 2], [6, 2, 0]]
    assert mask.tolist() == [[True] * 3, [True, True, False]]


# Subwords

TEXTS = [
    "A man is walking his dog in the park.",
    "Ein Mann geht mit seinem Hund im Park spazieren.",
    "Two women are walking in the snow.",
    "Zwei Frauen gehen im Schnee spazieren.",
] * 3

KEPT = SubwordVocabulary.learn(TEXTS, 330)
LOWER = SubwordVocabulary.learn(TEXTS, 330, "lower", "bpe")


@pytest.mark.parametrize("vocabulary", [KEPT, LOWER])
@given(text=st.text() | st.sampled_from(TEXTS) | st.text("aA▁￭<unk> é\u0301ß\ud800\n\x1c犬"))
def test_any_text_comes_back(vocabulary: SubwordVocabulary, text: str) -> None:
    pieces = vocabulary.split(text)
    indices = vocabulary.indices(pieces)
    assert 3 not in indices  # Nothing is unknown.
    assert tuple(vocabulary.tokens(range(4))) == SPECIAL_WORDS
    assert vocabulary.tokens(indices) == pieces
    assert vocabulary.join(pieces) == plain_text(text, vocabulary.case)


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["▁w", "ant", "s"], [("wants", 3)]),
        (["▁", "1", "2", "▁(", "T", "-"], [("12", 3), ("(", 1), ("T", 1), ("-", 1)]),
        (["▁d", "'", "un", "▁homme"], [("d'un", 3), ("homme", 1)]),
        (["▁'", "n", "'", "▁x", "'"], [("'", 1), ("n", 1), ("'", 1), ("x", 1), ("'", 1)]),
        (["▁a", "<0xE2>", "<0x80>", "<0xA6>", "b"], [("a", 1), ("…", 3), ("b", 1)]),
        (["▁a", "▁", "."], [("a", 1), (".", 2)]),
        (["▁男", "の人", "b", "。"], [("男", 1), ("の人", 1), ("b", 1), ("。", 1)]),
        ([], []),
    ],
)
def test_pieces_make_words(pieces: list[str], words: list[tuple[str, int]]) -> None:
    assert KEPT.words(pieces) == words


@given(text=st.text() | st.text('aA ,.-é…"犬\u0301'))
def test_words_hold_all_pieces_of_any_text(text: str) -> None:
    words = KEPT.words(KEPT.split(text))
    assert sum(word.size for word in words) == len(KEPT.split(text))
    assert [word for word in words if not word.text or word.size <= 0] == []
    read = "".join(word.text for word in words)
    assert "".join(read.split()) == "".join(plain_text(text).split())


def test_learning_is_deterministic_and_a_piece_of_a_line_end_ends_no_line() -> None:
    assert SubwordVocabulary.learn(TEXTS, 330) == KEPT
    assert LOWER.split("walking") == ["▁walking"]
    assert KEPT.join(["▁a", "<0x0A>", "▁hat", "<0x0D>", "<0x09>"]) == "a hat"
    assert KEPT.join(["▁a", "<0xE2>", "<0x80>", "<0xA8>", "hat"]) == "a hat"  # U+2028


def test_subwords_are_learned_from_so_many_texts_always_the_same(monkeypatch: Patch) -> None:
    texts = [*TEXTS, *map(chr, range(0x4E00, 0x4E00 + 400))]
    monkeypatch.setattr("captioner.text.sentences.LEARNED_FROM", 100)
    learned = SubwordVocabulary.learn(texts, 1000)
    assert SubwordVocabulary.learn(texts, 1000) == learned
    assert 50 < sum(len(learned.split(text)) == 2 for text in texts[len(TEXTS) :]) <= 100
    assert SubwordVocabulary.learn(texts[:100], 1000) != learned


def test_no_word_has_control_characters() -> None:
    """They are not learned, and a model with them is refused."""
    texts = ["a hat\x1b[2J https://x\x07y"] * 3
    assert Vocabulary.build([texts[0].split()], 1).words[4:] == ("a",)
    assert not [word for word in WordVocabulary.learn(texts).vocabulary.words if "\x1b" in word]
    learned = SubwordVocabulary.learn([*TEXTS, *texts, "Q Q Q"], 330)
    assert not [piece for piece in learned.tokens(range(len(learned))) if "\x1b" in piece]
    raw = learned.model.replace(b"\n\1Q", b"\n\1\a")  # The piece Q.
    value = SubwordVocabulary.to_json(SubwordVocabulary(raw))
    refuses("v.json: a piece has a control", SubwordVocabulary.from_json, value, "v.json")


LETTERS = 4 + 256 + len(set("".join(TEXTS)) - {" "}) + 1


def words(*ordinary: object) -> dict[str, Any]:
    return {"words": [*SPECIAL_WORDS, *ordinary], "case": "keep"}


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        (Vocabulary, [], 'v.json has no "words" that begin with <pad>, <start>'),
        (Vocabulary, {"words": ["a"]}, 'v.json has no "words" that begin'),
        (Vocabulary, words("a", "b", "a"), "v.json: word 6, 'a', is no word, .* twice"),
        (Vocabulary, words("a", 7), "v.json: word 5, 7, is no word"),
        (Vocabulary, words(["a"]), r"v.json: word 4, \['a'\], is no word"),
        (Vocabulary, words("\ud800"), r"v.json: word 4, '\\ud800', is no word"),
        (Vocabulary, words("<end>"), "word 4, '<end>', is no word, special"),
        (Vocabulary, {**words("a"), "classes": 5}, 'v.json: "classes" is no list'),
        (Vocabulary, {**words("a"), "classes": [0, 1, 2, 3]}, 'v.json: "classes" has not'),
        (Vocabulary, {**words("a"), "classes": [0, 1, 2, 3, 5]}, 'v.json: "classes" has not'),
        (Vocabulary, words("a", "a\x1b[2J"), r"v.json: word 5, 'a\\x1b\[2J', .* a control"),
        (WordVocabulary, words("a\nb"), r"v.json: word 4, 'a\\nb', .* or has a control"),
        (SubwordVocabulary, {}, 'v.json has no "model" that sentencepiece can read'),
        (SubwordVocabulary, {"case": "keep", "model": "aaaa"}, 'no "model"'),
    ],
)
def test_a_damaged_vocabulary_is_refused(kind: Any, value: object, sentence: str) -> None:
    refuses(sentence, kind.from_json, value, "v.json")


def test_as_many_subwords_as_letters_can_be_learned() -> None:
    assert len(SubwordVocabulary.learn(TEXTS, LETTERS)) == LETTERS
    refuses(f"100 subwords: .* 100 vs {LETTERS}", SubwordVocabulary.learn, TEXTS, 100)
    refuses(r"cannot learn text\.size 8000 subwords: ", SubwordVocabulary.learn, [" "])
