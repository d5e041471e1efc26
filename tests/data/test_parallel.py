from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

from captioner.data.length_buckets import batches_by_tokens
from captioner.data.pairs import PairExample, collate_pairs, encode_pairs, report_cut
from captioner.data.parallel import SentencePair, read_lines, read_parallel
from captioner.errors import UserError
from captioner.text.plain_text import plain_text
from captioner.text.word_vocabulary import WordVocabulary, join_words, split_words


def write(folder: Path, source: bytes, target: bytes) -> tuple[Path, Path]:
    paths = folder / "a.en", folder / "a.de"
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(content)
    return paths


def test_two_files_line_by_line(tmp_path: Path) -> None:
    english, german = "\ufeffA dog.\r\n A\u2028man\x0b! \n", "Ein Hund.\nÄ"
    read = read_parallel(*write(tmp_path, english.encode(), german.encode()))
    assert read.pairs == [
        SentencePair("A dog.", "Ein Hund.", 1),
        SentencePair("A\u2028man\x0b!", "Ä", 2),
    ]
    assert len(read.problems) == 0


def test_packed_files(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert read_lines(path) == ["one", "two"]
    for damaged in (gzip.compress(b"one\ntwo\n" * 99)[:-12], b"plain"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"text file .*a\.gz(: Not a| is not a whole) gzip"):
            read_lines(path)


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (b"a\nb\n", b"1\n", r"a\.en has 2 lines and .*a\.de has 1: line by line"),
        (b"a\nb\n", b"1\n\xff2\n", r"a\.de, line 2: byte 1 is not UTF-8 text"),
        (b"a\n\nc\n", b"1\n2\n3\n", r"1 empty sentence \(.*a\.en, line 2, .*\(in training "),
        (b"a\nb\nc\n", b"1\n2\n \t\n", r"1 empty sentence \(.*a\.de, line 3, is empty\)"),
        (b"", b"", r"there is no sentence in .*a\.en and .*a\.de"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, source, target, message) -> None:
    with pytest.raises(UserError, match=message):
        read_parallel(*write(tmp_path, source, target))


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read text file .*none\.en: No such file"):
        read_lines(tmp_path / "none.en")
    with pytest.raises(UserError, match="cannot read text file"):
        read_lines(tmp_path)


def test_empty_sides_may_be_skipped(tmp_path: Path) -> None:
    read = read_parallel(*write(tmp_path, b"a\n\nc\n", b"1\n2\n3\n"), on_problem="skip")
    assert [pair.line for pair in read.pairs] == [1, 3]
    assert "left out 1 empty sentence" in read.problems.summary()


def test_pairs_are_encoded_and_long_ones_cut_and_counted() -> None:
    pairs = [SentencePair("a b c", "x", 1), SentencePair("b", "y x", 2)]
    source = WordVocabulary.learn(["a b c"], 1, "keep")
    target = WordVocabulary.learn(["x y"], 1, "keep")
    examples, cut = encode_pairs(pairs, source, target, 2)
    assert examples == [PairExample([4, 5], [4]), PairExample([5], [5, 4])]
    assert cut == [1]
    assert encode_pairs(pairs, source, target, 9)[1] == []


def test_cut_lines_are_told() -> None:
    found = report_cut("source", range(3, 15), "2 tokens")
    assert found == "12 sources cut to 2 tokens: lines 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 2 more"
    assert report_cut("pair", [1], "2 tokens a side") == "1 pair cut to 2 tokens a side: line 1"


def test_a_batch_of_pairs() -> None:
    batch = collate_pairs(
        [PairExample([7, 8], [4, 5, 6]), PairExample([], [9]), PairExample([4], [])]
    )
    assert batch.source.tolist() == [[7, 8, 2], [2, 0, 0], [4, 2, 0]]
    assert batch.source_mask.int().tolist() == [[1, 1, 1], [1, 0, 0], [1, 1, 0]]
    assert batch.inputs.tolist() == [[1, 4, 5, 6], [1, 9, 0, 0], [1, 0, 0, 0]]
    assert batch.targets.tolist() == [[4, 5, 6, 2], [9, 2, 0, 0], [2, 0, 0, 0]]
    assert batch.mask.int().tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]]


def test_batches_by_tokens() -> None:
    lengths = torch.randint(1, 40, (3000,), generator=torch.Generator().manual_seed(0)).tolist()
    generator = torch.Generator().manual_seed(1)
    epochs = [batches_by_tokens(lengths, 500, generator) for _ in range(3)]
    assert len({len(batches) for batches in epochs}) == 1
    assert epochs[0] != epochs[1]
    for batches in epochs:
        assert sorted(index for batch in batches for index in batch) == list(range(3000))
        filled = [len(batch) * max(lengths[index] for index in batch) for batch in batches]
        assert max(filled) <= 500
        padding = sum(filled) - sum(lengths)
        assert padding < 0.03 * sum(lengths)
        assert filled[0] != max(filled) or filled != sorted(filled)


def test_a_pair_longer_than_a_batch_has_one_of_its_own() -> None:
    batches = batches_by_tokens([3, 50, 3, 3], 6, torch.Generator())
    assert sorted(map(len, batches)) == [1, 1, 2]
    assert batches_by_tokens([], 5, torch.Generator()) == []


REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "multi30k"


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif(not REAL.is_dir(), reason="the real Multi30k is not in ../shared/data")
@pytest.mark.parametrize("language", ["de", "fr"])
def test_the_real_text(language: str) -> None:
    """Both sides of a pair are cut into words and put together again, every line of them."""
    read = read_parallel(REAL / "train.en.gz", REAL / f"train.{language}.gz", "skip")
    assert len(read.pairs) + len(read.problems) == 29_000
    assert len(read.problems) < 10
    for pair in read.pairs:
        for text in (pair.source, pair.target):
            plain = plain_text(text)
            assert join_words(split_words(plain)) == plain
    read = read_parallel(REAL / "val.en.gz", REAL / f"val.{language}.gz")
    assert len(read.pairs) == 1014
