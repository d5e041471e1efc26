"""sacrebleu's scores of translations, and BLEU against the length of the source."""

import pytest

from captioner.evaluation.translations import evaluate_translations

sacrebleu = pytest.importorskip("sacrebleu", reason="sacrebleu is not installed")

SOURCES = ["one two three four five", "one", "a b c d e f", "a b c d e f g h i j k", ""]
REFERENCES = ["vier Wörter sind hier", "eins", "es sind fünf Wörter hier", "so lang " * 6, "nichts"]
FOUND = ["vier Wörter sind da", "eins", "es sind fünf Wörter hier", "so kurz und lang", ""]


def test_they_are_sacrebleus_with_its_signatures() -> None:
    scores = evaluate_translations(FOUND, REFERENCES)
    bleu = sacrebleu.corpus_bleu(FOUND, [REFERENCES])
    assert scores.scores == {
        "BLEU": pytest.approx(bleu.score),
        "brevity_penalty": pytest.approx(bleu.bp),
        "chrF": pytest.approx(sacrebleu.corpus_chrf(FOUND, [REFERENCES]).score),
        "exact match": 2 / 5,
    }
    assert f"version:{sacrebleu.__version__}" in scores.signatures["BLEU"]
    assert scores.signatures["BLEU"] in scores.table()


def test_each_bucket_is_scored_as_a_corpus_of_its_own() -> None:
    buckets = evaluate_translations(FOUND, REFERENCES, SOURCES).lengths
    assert [each["words"] for each in buckets] == [[1, 5], [6, 10], [11, 15]]
    for bucket, places in zip(buckets, ([0, 1, 4], [2], [3]), strict=True):
        found, truth = ([column[place] for place in places] for column in (FOUND, REFERENCES))
        wanted = sacrebleu.corpus_bleu(found, [truth])
        assert bucket["sentences"] == len(places)
        assert bucket["BLEU"] == pytest.approx(wanted.score)
        assert bucket["brevity_penalty"] == pytest.approx(wanted.bp)
