"""sacrebleu's scores of translations, and BLEU against the length of the source."""

from __future__ import annotations

import sys

import pytest

from captioner.errors import UserError
from captioner.evaluation.translations import bleu_by_length, evaluate_translations

sacrebleu = pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")

SOURCES = ["one two three four five", "one", "a b c d e f", "a b c d e f g h i j k", ""]
REFERENCES = ["vier Wörter sind hier", "eins", "es sind fünf Wörter hier", "so lang " * 6, "nichts"]
FOUND = ["vier Wörter sind da", "eins", "es sind fünf Wörter hier", "so kurz und lang", ""]


def test_they_are_sacrebleus_with_its_signatures() -> None:
    scores = evaluate_translations(FOUND, REFERENCES)
    bleu = sacrebleu.corpus_bleu(FOUND, [REFERENCES])
    assert scores.bleu == pytest.approx(bleu.score)
    assert scores.brevity_penalty == pytest.approx(bleu.bp)
    assert scores.brevity_penalty < 1
    assert scores.chrf == pytest.approx(sacrebleu.corpus_chrf(FOUND, [REFERENCES]).score)
    assert scores.exact == 2 / 5
    assert "case:mixed" in scores.bleu_signature
    assert f"version:{sacrebleu.__version__}" in scores.bleu_signature
    assert scores.as_dict().keys() == {"BLEU", "brevity_penalty", "chrF", "exact match"}
    assert scores.bleu_signature in scores.table()
    assert f"{scores.bleu:.2f}" in scores.table()


def test_small_letters_are_in_the_signature() -> None:
    upper = [text.upper() for text in REFERENCES]
    assert evaluate_translations(upper, REFERENCES).bleu < 50
    scores = evaluate_translations(upper, REFERENCES, lower_case=True)
    assert scores.bleu == pytest.approx(100)
    assert "case:lc" in scores.bleu_signature


def test_each_bucket_is_scored_as_a_corpus_of_its_own() -> None:
    buckets = bleu_by_length(FOUND, REFERENCES, SOURCES)
    assert [(b.first, b.last, b.sentences) for b in buckets] == [(1, 5, 3), (6, 10, 1), (11, 15, 1)]
    for bucket, places in zip(buckets, ([0, 1, 4], [2], [3]), strict=True):
        wanted = sacrebleu.corpus_bleu(
            [FOUND[place] for place in places], [[REFERENCES[place] for place in places]]
        )
        assert bucket.bleu == pytest.approx(wanted.score)
        assert bucket.brevity_penalty == pytest.approx(wanted.bp)
    assert buckets[1].bleu == pytest.approx(100)
    assert buckets[2].brevity_penalty < 1


def test_what_cannot_be_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no translation to score"):
        evaluate_translations([], [])
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UserError, match=r'sacrebleu: pip install "captioner\[translate\]"'):
        evaluate_translations(FOUND, REFERENCES)
