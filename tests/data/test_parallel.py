import gzip
from pathlib import Path

import pytest

from captioner.data.parallel import SentencePair, number_in_words, number_pairs, read_parallel
from captioner.errors import UserError


def test_two_files_line_by_line(tmp_path: Path) -> None:
    english, german = tmp_path / "a.en", tmp_path / "a.de"
    english.write_bytes("\ufeffA dog.\r\n A\u2028man\x0b! \n".encode())
    german.write_bytes("Ein Hund.\nÄ".encode())
    expected = [("A dog.", "Ein Hund.", 1), ("A\u2028man\x0b!", "Ä", 2)]
    assert read_parallel(english, german)[0] == [SentencePair(*pair) for pair in expected]
    english.write_bytes(b"a\n\n")
    pairs, problems = read_parallel(english, german, on_problem="skip")
    assert [pair.line for pair in pairs] == [1]
    assert "left out 1 empty sentence" in problems.sentences[0]


def test_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert [pair.target for pair in read_parallel(path, path)[0]] == ["one", "two"]
    for damaged in (gzip.compress(b"one\ntwo\n" * 99)[:-12], b"plain"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"text file .*a\.gz is not a whole gzip file"):
            read_parallel(path, path)


NUMBERS = {
    20: "twenty",
    117: "one hundred and seventeen",
    4007: "four thousand and seven",
    4700: "four thousand seven hundred",
    999_999: "nine hundred and ninety nine thousand nine hundred and ninety nine",
}


def test_pairs_of_numbers() -> None:
    assert {number: number_in_words(number) for number in NUMBERS} == NUMBERS
    pairs = number_pairs(50, seed=3, largest=99)
    assert len({pair.source for pair in pairs}) == 50
    for pair in pairs:
        assert number_in_words(int(pair.target.replace(" ", ""))) == pair.source
    assert pairs == number_pairs(50, seed=3, largest=99) != number_pairs(50, seed=4, largest=99)
