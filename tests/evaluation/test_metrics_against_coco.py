"""The scores of the COCO evaluation against its own scorers, to 1e-9; METEOR and SPICE by these."""

import json
import os
import random
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from captioner.errors import UserError
from captioner.evaluation import coco_metrics
from captioner.evaluation.coco_metrics import (
    DocumentFrequency,
    bleu,
    cider_d,
    meteor,
    rouge_l,
    spice,
)
from captioner.evaluation.corpus import Corpus, Metric
from captioner.evaluation.score import Scorer

Tokens = list[str]


def assert_equal_to_coco(hypotheses: list[Tokens], references: list[list[Tokens]]) -> None:
    results = {index: [" ".join(tokens)] for index, tokens in enumerate(hypotheses)}
    truth = {index: [" ".join(each) for each in texts] for index, texts in enumerate(references)}
    corpus = Corpus(hypotheses, references)
    pairs = [(Rouge().compute_score(truth, results), rouge_l(corpus))]
    score, per_image = Bleu(4).compute_score(truth, results, verbose=0)
    pairs.append(((score, np.array(per_image).T), bleu(corpus)))
    if len(hypotheses) > 1 and any(tokens for candidates in references for tokens in candidates):
        for frequency in (None, DocumentFrequency.from_references(references)):
            pairs.append((Cider().compute_score(truth, results), cider_d(corpus, frequency)))
    for (score, per_image), ours in pairs:
        np.testing.assert_allclose(ours.scores, np.atleast_1d(score), rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours.per_image, per_image, rtol=0, atol=1e-9)


def test_long_captions_and_odd_words() -> None:
    dog, rocket = "\N{DOG FACE}", "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET}"
    long = random.Random(2).choices(["a", "dog", "runs", "far"], k=10_000)
    hypotheses = [[], long, [dog, rocket, dog], ["the"] * 7]
    references = [[["a"], []], [["a", "dog", "runs", "far"] * 3, ["a"]], [[dog, dog], [rocket]]]
    assert_equal_to_coco(hypotheses, [*references, [["the", "cat"], ["the", "the", "mat"]]])


captions = st.lists(st.sampled_from(["a", "dog", "runs", "é"]), max_size=9)


@given(st.lists(st.tuples(captions, st.lists(captions, min_size=1, max_size=4)), min_size=1))
def test_any_corpus(pairs: list[tuple[Tokens, list[Tokens]]]) -> None:
    assert_equal_to_coco([pair[0] for pair in pairs], [pair[1] for pair in pairs])


# METEOR and SPICE

WORDS = [["a", "brown", "dog", "runs"], ["two", "cats", "sleep"], []]
REFERENCES = [[["a", "dog", "runs"], ["the", "brown", "dog"]], [["two", "cats"]], [["a", "plane"]]]
HOSTILE = [["a", "|||", "dog"], ["été"], ["a\ncat"]]
HOSTILE_REFERENCES = [[["a", "dog"]], [["ètè"], ["x|||y"]], [["a", "cat"]]]
PAIR = Corpus([["a", "dog"], ["a", "cat"]], [[["the", "dog"]], [["x"], ["one", "cat"]]])


@pytest.mark.slow
@pytest.mark.java
def test_meteor_is_that_of_the_coco_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    from pycocoevalcap.meteor.meteor import Meteor

    with monkeypatch.context() as patch:  # A decimal comma has pycocoevalcap wait for ever.
        patch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=de -Duser.country=DE")
        scores = meteor(Corpus(WORDS, REFERENCES))
        hostile = meteor(Corpus(HOSTILE, HOSTILE_REFERENCES))
        assert os.environ["JAVA_TOOL_OPTIONS"].endswith("=DE")
    texts = {index: [" ".join(tokens)] for index, tokens in enumerate(WORDS)}
    truth = {index: [" ".join(tokens) for tokens in each] for index, each in enumerate(REFERENCES)}
    scorer = Meteor()
    expected, per_image = scorer.compute_score(truth, texts)
    scorer.meteor_p.stdout.close()
    scorer.meteor_p.stderr.close()
    assert scores.per_image.tolist() == pytest.approx(per_image, abs=1e-12)
    assert scores.scores[0] == pytest.approx(expected, abs=1e-12)
    assert hostile.per_image.tolist() == [1.0, 0.0, 1.0]


def test_meteor_has_a_score_and_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Metric(("METEOR",), np.array([0.2, 0.6]), np.empty((2, 0)), lambda _: np.array([0.5]))
    monkeypatch.setattr(coco_metrics, "check_java_metric", lambda _: None)
    monkeypatch.setattr(coco_metrics, "meteor", lambda _: made)
    texts = {1: "a dog", 2: "a cat"}, [["the dog"], ["the cat"]]
    found = Scorer(("METEOR", "ROUGE-L"), confidence=0.9).score(*texts, "the captions")
    assert found.by_name()["METEOR"] == 0.5
    assert list(found.details["intervals"]) == ["ROUGE-L"]


def test_spice_gets_the_words_and_gives_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    from pycocoevalcap.spice import spice as package

    def run(command: list[str], cwd: str) -> None:
        given = json.loads(Path(command[4]).read_text())
        pairs = [(each["test"], each["refs"]) for each in given]
        assert pairs == [("a dog", ["the dog"]), ("a cat", ["x", "one cat"])]
        figures = [{"scores": {"All": {"f": figure}}} for figure in (0.25, 0.75)]
        images = [{"image_id": each["image_id"]} for each in given]
        scores = [image | figure for image, figure in zip(images, figures, strict=True)]
        Path(command[command.index("-out") + 1]).write_text(json.dumps(scores))

    monkeypatch.setattr(package, "get_stanford_models", lambda: None)
    monkeypatch.setattr(package.subprocess, "check_call", run)
    assert spice(PAIR).per_image.tolist() == [0.25, 0.75]


@pytest.mark.skipif(os.name == "nt", reason="a script stands in for the program java")
def test_a_program_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing waits for the lock that the package's class still holds."""
    program = tmp_path / "java"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit(1)\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="METEOR's Java program failed"):
        meteor(PAIR)
