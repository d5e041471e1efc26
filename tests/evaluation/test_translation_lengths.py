"""BLEU against the length of the source."""

from __future__ import annotations

import pytest

from captioner.errors import UserError
from captioner.evaluation.translation_report import bleu_by_length

sacrebleu = pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")

SOURCES = ["one two three four", "one", "one two three four five", "a b c d e f g h i j k", ""]
REFERENCES = ["vier Wörter sind hier", "eins", "es sind fünf Wörter hier", "so lang " * 6, "nichts"]
FOUND = ["vier Wörter sind da", "eins", "es sind fünf Wörter hier", "so kurz und lang", ""]


def test_each_bucket_is_scored_as_a_corpus_of_its_own() -> None:
    buckets = bleu_by_length(FOUND, REFERENCES, SOURCES, width=4)
    assert [(b.first, b.last, b.sentences) for b in buckets] == [(1, 4, 3), (5, 8, 1), (9, 12, 1)]
    for bucket, places in zip(buckets, ([0, 1, 4], [2], [3]), strict=True):
        wanted = sacrebleu.corpus_bleu(
            [FOUND[place] for place in places], [[REFERENCES[place] for place in places]]
        )
        assert bucket.bleu == pytest.approx(wanted.score)
        assert bucket.brevity_penalty == pytest.approx(wanted.bp)
    assert buckets[1].bleu == pytest.approx(100)
    assert buckets[2].brevity_penalty < 1


def test_buckets_cover_whole_ranges_from_one() -> None:
    texts = [" ".join(["word"] * length) for length in (5, 6, 10, 11)]
    buckets = bleu_by_length(texts, texts, texts)
    assert [(b.first, b.last, b.sentences) for b in buckets] == [(1, 5, 1), (6, 10, 2), (11, 15, 1)]
    assert [b.first for b in bleu_by_length(texts, texts, texts, width=1)] == [5, 6, 10, 11]


def test_what_cannot_be_divided() -> None:
    with pytest.raises(UserError, match="width 0 of buckets"):
        bleu_by_length(FOUND, REFERENCES, SOURCES, width=0)
