"""sacrebleu's scores of translations, and BLEU against the length of the source."""

from pathlib import Path

import pytest

from captioner.data.example import Problems
from captioner.errors import UserError
from captioner.evaluation.translations import evaluate_translations, score_hypotheses

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


def write(folder: Path, **texts: list[str]) -> list[Path]:
    """Files of these names, a text a line."""
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [folder / name for name in texts]


def test_files_without_case(tmp_path: Path) -> None:
    upper = [text.upper() for text in REFERENCES]
    files = write(tmp_path, upper=upper, references=REFERENCES, sources=[*SOURCES[:4], "."])
    assert score_hypotheses(*files).scores["BLEU"] < 50
    scores = score_hypotheses(*files, lower_case=True)
    assert scores.scores["BLEU"] == pytest.approx(100)
    plain = scores.to_dict()
    assert "case:lc" in plain["signatures"]["BLEU"]
    assert plain["sentences"] == sum(each["sentences"] for each in plain["lengths"]) == 5
    assert scores.table().splitlines()[-1].split() == ["11", "to", "15", "1", "100.0000", "1.0000"]


def test_empty_references_are_left_out_on_request(tmp_path: Path) -> None:
    wanted = [REFERENCES[0], " ", *REFERENCES[2:]]
    files = write(tmp_path, found=FOUND, references=wanted, sources=SOURCES)
    sentence = r"1 empty sentence \(.*references, line 2\) \(--on-problem skip leaves"
    with pytest.raises(UserError, match=sentence):
        score_hypotheses(*files)
    problems = Problems("skip")
    scores = score_hypotheses(*files, problems=problems)
    kept = [0, 2, 3, 4]
    texts = ([column[place] for place in kept] for column in (FOUND, REFERENCES, SOURCES))
    assert scores == evaluate_translations(*texts)
    assert problems.kinds == {"empty sentence": [f"{files[1]}, line 2"]}
    files[1].write_text("\n" * 5)
    with pytest.raises(UserError, match="there is no sentence in"):
        score_hypotheses(*files, problems=Problems("skip"))


def test_each_bucket_is_scored_as_a_corpus_of_its_own() -> None:
    buckets = evaluate_translations(FOUND, REFERENCES, SOURCES).lengths
    assert [each["words"] for each in buckets] == [[1, 5], [6, 10], [11, 15]]
    for bucket, places in zip(buckets, ([0, 1, 4], [2], [3]), strict=True):
        found, truth = ([column[place] for place in places] for column in (FOUND, REFERENCES))
        wanted = sacrebleu.corpus_bleu(found, [truth])
        assert bucket["sentences"] == len(places)
        assert bucket["BLEU"] == pytest.approx(wanted.score)
        assert bucket["brevity_penalty"] == pytest.approx(wanted.bp)
