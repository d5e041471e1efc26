"""METEOR and SPICE by the COCO evaluation's own classes."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from captioner.errors import UserError
from captioner.evaluation import score
from captioner.evaluation.corpus import Corpus, Metric
from captioner.evaluation.java_metrics import meteor, spice
from captioner.evaluation.scorer import Scorer
from captioner.text.tokenizer import tokenize

CAPTIONS = [
    "A brown dog runs on grass.",
    "Two cats sleep on the mat",
    "A small child is playing with toys",
    "",
    "Nothing in common",
]
REFERENCES = [
    ["a dog runs on the grass", "The brown dog is running."],
    ["two cats sleeping on a mat"],
    ["A little kid plays with his toys"],
    ["a plane"],
    ["the red bus stops here"],
]
HOSTILE = [["a", "|||", "dog"], ["été"], ["a\ncat"]]
HOSTILE_REFERENCES = [[["a", "dog"]], [["ètè"], ["x|||y"]], [["a", "cat"]]]
PAIR = Corpus.of([["a", "dog"], ["a", "cat"]], [[["the", "dog"]], [["x"], ["one", "cat"]]])


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java runtime")
def test_meteor_is_that_of_the_coco_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    from pycocoevalcap.meteor.meteor import Meteor

    words = [tokenize(caption) for caption in CAPTIONS]
    references = [[tokenize(caption) for caption in of_image] for of_image in REFERENCES]
    with monkeypatch.context() as patch:  # A decimal comma has pycocoevalcap wait for ever.
        patch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=de -Duser.country=DE")
        scores = meteor(Corpus.of(words, references))
        hostile = meteor(Corpus.of(HOSTILE, HOSTILE_REFERENCES))
        assert os.environ["JAVA_TOOL_OPTIONS"].endswith("=DE")
    texts = {index: [" ".join(tokens)] for index, tokens in enumerate(words)}
    truth = {index: [" ".join(tokens) for tokens in each] for index, each in enumerate(references)}
    scorer = Meteor()
    expected, per_image = scorer.compute_score(truth, texts)
    scorer.meteor_p.stdout.close()
    scorer.meteor_p.stderr.close()
    assert scores.per_image.tolist() == pytest.approx(per_image, abs=1e-12)
    assert scores.scores[0] == pytest.approx(expected, abs=1e-12)
    assert scores.scores[0] != pytest.approx(scores.per_image.mean(), abs=1e-3)
    assert hostile.per_image.tolist() == [1.0, 0.0, 1.0]


def test_meteor_has_a_score_and_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Metric(("METEOR",), np.array([0.2, 0.6]), np.empty((2, 0)), lambda _: np.array([0.5]))
    monkeypatch.setattr(score, "check_java_metric", lambda _: None)
    monkeypatch.setattr(score, "meteor", lambda _: made)
    texts = {1: "a dog", 2: "a cat"}, [["the dog"], ["the cat"]]
    found = Scorer(("METEOR", "ROUGE-L"), confidence=0.9).score(*texts, "the captions")
    assert found.by_name()["METEOR"] == 0.5
    assert list(found.intervals or ()) == ["ROUGE-L"]


def test_spice_gets_the_words_and_gives_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    from pycocoevalcap.spice import spice as package

    def run(command: list[str], cwd: str) -> None:
        given = json.loads(Path(command[4]).read_text())
        assert [(each["test"], each["refs"]) for each in given] == [
            ("a dog", ["the dog"]),
            ("a cat", ["x", "one cat"]),
        ]
        scores = [
            {"image_id": each["image_id"], "scores": {"All": {"f": 0.25 + n / 2}}}
            for n, each in enumerate(given)
        ]
        Path(command[command.index("-out") + 1]).write_text(json.dumps(scores))

    monkeypatch.setattr(package, "get_stanford_models", lambda: None)
    monkeypatch.setattr(package.subprocess, "check_call", run)
    found = spice(PAIR)
    assert found.scores[0] == 0.5
    assert found.per_image.tolist() == [0.25, 0.75]


@pytest.mark.skipif(os.name == "nt", reason="a script stands in for the program java")
@pytest.mark.parametrize(
    "code", ["sys.exit(1)", "for line in sys.stdin: print('nonsense', flush=True)"]
)
def test_a_program_that_fails(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing waits for the lock that the package's class still holds."""
    program = tmp_path / "java"
    program.write_text(f"#!{sys.executable}\nimport sys\n{code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="METEOR's Java program failed"):
        meteor(PAIR)
