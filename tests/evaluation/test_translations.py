"""sacrebleu's scores of translations, and BLEU against the length of the source."""

from __future__ import annotations

import pytest

from captioner.evaluation.translations import evaluate_translations

sacrebleu = pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")

SOURCES = ["one two three four five", "one", "a b c d e f", "a b c d e f g h i j k", ""]
REFERENCES = ["vier Wörter sind hier", "eins", "es sind fünf Wörter hier", "so lang " * 6, "nichts"]
FOUND = ["vier Wörter sind da", "eins", "es sind fünf Wörter hier", "so kurz und lang", ""]


def test_they_are_sacrebleus_with_its_signatures() -> None:
    scores = evaluate_translations(FOUND, REFERENCES)
    bleu = sacrebleu.corpus_bleu(FOUND, [REFERENCES])
    assert scores.by_name() == {
        "BLEU": pytest.approx(bleu.score),
        "brevity_penalty": pytest.approx(bleu.bp),
        "chrF": pytest.approx(sacrebleu.corpus_chrf(FOUND, [REFERENCES]).score),
        "exact match": 2 / 5,
    }
    assert "case:mixed" in scores.bleu_signature
    assert f"version:{sacrebleu.__version__}" in scores.bleu_signature
    assert scores.bleu_signature in scores.table()
    assert f"{scores.bleu:.2f}" in scores.table()


def test_small_letters_are_in_the_signature() -> None:
    upper = [text.upper() for text in REFERENCES]
    assert evaluate_translations(upper, REFERENCES).bleu < 50
    scores = evaluate_translations(upper, REFERENCES, lower_case=True)
    assert scores.bleu == pytest.approx(100)
    assert "case:lc" in scores.bleu_signature


def test_each_bucket_is_scored_as_a_corpus_of_its_own() -> None:
    buckets = evaluate_translations(FOUND, REFERENCES, SOURCES).lengths
    assert [(each["words"], each["sentences"]) for each in buckets] == [
        ([1, 5], 3),
        ([6, 10], 1),
        ([11, 15], 1),
    ]
    for bucket, places in zip(buckets, ([0, 1, 4], [2], [3]), strict=True):
        wanted = sacrebleu.corpus_bleu(
            [FOUND[place] for place in places], [[REFERENCES[place] for place in places]]
        )
        assert bucket["BLEU"] == pytest.approx(wanted.score)
        assert bucket["brevity_penalty"] == pytest.approx(wanted.bp)
