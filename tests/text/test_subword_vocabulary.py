import pytest
from hypothesis import given
from hypothesis import strategies as st

from captioner.text.plain_text import plain_text
from captioner.text.subword_vocabulary import SubwordVocabulary
from captioner.text.vocabulary import SPECIAL_WORDS

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
    expected = plain_text(text, vocabulary.case)
    pieces = vocabulary.split(text)
    indices = vocabulary.indices(pieces)
    assert 3 not in indices  # Nothing is unknown.
    assert tuple(vocabulary.tokens(range(4))) == SPECIAL_WORDS
    assert vocabulary.tokens(indices) == pieces
    assert vocabulary.join(pieces) == vocabulary.join(vocabulary.tokens(indices)) == expected


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["▁w", "ant", "s"], [("wants", 3)]),
        (["▁a", "▁hat", "."], [("a", 1), ("hat", 1), (".", 1)]),
        (["▁", "1", "2", "▁(", "T", "-"], [("12", 3), ("(", 1), ("T", 1), ("-", 1)]),
        (['▁"', "no", '"'], [('"', 1), ("no", 1), ('"', 1)]),
        (["▁", "<0xC3>", "<0xA9>"], [("é", 3)]),
        (["▁d", "'", "un", "▁homme"], [("d'un", 3), ("homme", 1)]),
        (["▁man", "\u2019", "s"], [("man\u2019s", 3)]),
        (["▁'", "n", "'", "▁x", "'"], [("'", 1), ("n", 1), ("'", 1), ("x", 1), ("'", 1)]),
        (["▁a", "<0xE2>", "<0x80>", "<0xA6>", "b"], [("a", 1), ("…", 3), ("b", 1)]),
        (["▁x", "\u0301", "y"], [("x\u0301y", 3)]),
        (["▁", "▁a"], [("a", 2)]),
        (["▁a", "▁"], [("a", 2)]),
        (["▁a", "▁", "."], [("a", 1), (".", 2)]),
        (["▁男", "の", "人が", "。"], [("男", 1), ("の", 1), ("人が", 1), ("。", 1)]),
        (["▁a", "犬", "b"], [("a", 1), ("犬", 1), ("b", 1)]),
        (["▁"], [("▁", 1)]),
        ([], []),
    ],
)
def test_pieces_make_words(pieces: list[str], words: list[tuple[str, int]]) -> None:
    assert KEPT.words(pieces) == words


@given(text=st.text() | st.text('aA ,.-é…"犬\u0301'))
def test_words_hold_all_pieces_of_any_text(text: str) -> None:
    pieces = KEPT.split(text)
    words = KEPT.words(pieces)
    assert sum(word.size for word in words) == len(pieces)
    assert all(word.text and word.size > 0 for word in words)
    read = "".join(word.text for word in words)
    plain = plain_text(text, "keep")
    assert "".join(read.split()) == "".join(plain.split()) or "▁" in plain


def test_the_same_text_gives_the_same_pieces() -> None:
    assert SubwordVocabulary.learn(TEXTS, 330) == KEPT
    assert SubwordVocabulary.learn(TEXTS, 290) != KEPT
    assert LOWER.split("walking") == ["▁walking"]
    assert KEPT.shown(["▁walk", "ing"]) == ["▁walk", "ing"]


def test_a_piece_of_a_line_end_ends_no_line() -> None:
    assert KEPT.join(["▁a", "<0x0A>", "▁hat", "<0x0D>", "<0x09>"]) == "a hat"
    assert KEPT.join(["▁a", "<0xE2>", "<0x80>", "<0xA8>", "hat"]) == "a hat"  # U+2028
