from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from captioner.errors import UserError
from captioner.evaluation import captions, java_metrics
from captioner.evaluation.caption_scorer import Scorer
from captioner.evaluation.java_metrics import check_spice, meteor, spice
from captioner.evaluation.metric import Metric
from captioner.evaluation.texts import CaptionTexts
from captioner.text.tokenizer import tokenize

needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="needs a Java runtime")
posix = pytest.mark.skipif(os.name == "nt", reason="a script stands in for the program java")

CAPTIONS = [
    "A brown dog runs on grass.",
    "Two cats sleep on the mat",
    "A horse is ridden by a man",
    "A small child is playing with toys",
    "",
    "a dog",
    "Nothing in common",
]
REFERENCES = [
    ["a dog runs on the grass", "The brown dog is running."],
    ["two cats sleeping on a mat"],
    ["a man rides a horse", "a man on a horse"],
    ["A little kid plays with his toys"],
    ["a plane"],
    ["a cat", "a dog"],
    ["the red bus stops here"],
]


def words(captions: list[str]) -> list[list[str]]:
    return [tokenize(caption) for caption in captions]


HOSTILE = [["a", "|||", "dog"], ["été"], ["a\ncat"], ["\ud800"]]
HOSTILE_REFERENCES = [[["a", "dog"]], [["ètè"], ["x|||y"]], [["a", "cat"]], [["a"]]]


@pytest.mark.slow
@pytest.mark.java
@needs_java
def test_meteor_is_that_of_the_coco_evaluation() -> None:
    from pycocoevalcap.meteor.meteor import Meteor

    with pytest.MonkeyPatch.context() as patch:  # A decimal comma has pycocoevalcap wait for ever.
        patch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=de -Duser.country=DE")
        scores = meteor(words(CAPTIONS), [words(of_image) for of_image in REFERENCES])
        hostile = meteor(HOSTILE, HOSTILE_REFERENCES)
    texts = {index: [" ".join(tokenize(caption))] for index, caption in enumerate(CAPTIONS)}
    truth = {
        index: [" ".join(tokenize(caption)) for caption in of_image]
        for index, of_image in enumerate(REFERENCES)
    }
    scorer = Meteor()
    expected, per_image = scorer.compute_score(truth, texts)
    scorer.meteor_p.stdout.close()
    scorer.meteor_p.stderr.close()
    assert scores.per_image.tolist() == pytest.approx(per_image, abs=1e-12)
    assert scores.score == pytest.approx(expected, abs=1e-12)
    assert scores.score != pytest.approx(scores.per_image.mean(), abs=1e-3)
    assert per_image[5] == 1.0
    assert per_image[4] == per_image[6] == 0.0
    assert hostile.per_image.tolist() == [1.0, 0.0, 1.0, 0.0]


def test_meteor_has_a_score_and_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Metric(("METEOR",), np.array([0.2, 0.6]), np.empty((2, 0)), lambda _: np.array([0.5]))
    monkeypatch.setattr(captions, "check_meteor", lambda: None)
    monkeypatch.setattr(captions, "meteor", lambda *texts: made)
    texts = CaptionTexts.of(["a dog", "a cat"], [["the dog"], ["the cat"]])
    report = Scorer(("METEOR", "ROUGE-L"), confidence=0.9).report(texts, "the captions")
    assert report.as_dict()["METEOR"] == 0.5
    assert [row["METEOR"] for row in report.scores.per_image()] == [0.2, 0.6]
    assert list(report.as_dict()["intervals"]) == ["ROUGE-L"]
    with pytest.raises(UserError, match="METEOR has no interval"):
        Scorer(["METEOR"], against="other.json")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for metric in ("METEOR", "SPICE"):
        with pytest.raises(UserError, match=f'{metric} needs .* pip install "captioner.java]"'):
            captions.evaluate_captions(["a"], [["a"]], metrics=[metric])


def test_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"METEOR needs Java, .* no program named java"):
        meteor([["a"]], [[["a"]]])


def stand_in(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program named java on the PATH, written in Python."""
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys, json\n{code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


@posix
def test_missing_models_are_named_and_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, "", monkeypatch)
    monkeypatch.setattr(java_metrics, "_package_folder", lambda _: tmp_path)
    with pytest.raises(UserError, match=r"3\.6\.0\.jar and .* are not in .*get_stanford_models"):
        check_spice()
    library = tmp_path / "spice" / "lib"
    library.mkdir(parents=True)
    (library / "stanford-corenlp-3.6.0.jar").touch()
    with pytest.raises(UserError, match=r"and stanford-corenlp-3\.6\.0-models\.jar is not in"):
        captions.evaluate_captions(["a"], [["a"]], metrics=["SPICE"])
    (library / "stanford-corenlp-3.6.0-models.jar").touch()
    check_spice()


@posix
def test_spice_gets_the_words_and_gives_the_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        "given = json.load(open(sys.argv[sys.argv.index('-cache') - 1]))\n"
        f"json.dump(given, open({str(tmp_path / 'seen.json')!r}, 'w'))\n"
        "print('loading')\n"
        "scores = [{'image_id': each['image_id'], 'scores': {'All': {'f': 0.25 + n / 2}}}\n"
        "          for n, each in enumerate(given)]\n"
        "json.dump(scores, open(sys.argv[sys.argv.index('-out') + 1], 'w'))"
    )
    stand_in(tmp_path, code, monkeypatch)
    found = spice([["a", "dog"], ["a", "cat"]], [[["the", "dog"]], [["x"], ["one", "cat"]]])
    assert found.score == 0.5
    assert found.per_image.tolist() == [0.25, 0.75]
    assert json.loads((tmp_path / "seen.json").read_text()) == [
        {"image_id": 0, "test": "a dog", "refs": ["the dog"]},
        {"image_id": 1, "test": "a cat", "refs": ["x", "one cat"]},
    ]
    assert capfd.readouterr() == ("", "")


@posix
@pytest.mark.parametrize(
    ("metric", "code", "sentence"),
    [
        (
            meteor,
            r"sys.exit('no memory\njava.lang.Error: heap\n\tat a.b(c)')",
            "java.lang.Error: heap",
        ),
        (meteor, "for line in sys.stdin: print('0,5', flush=True)", "METEOR's Java program failed"),
        (meteor, "for line in sys.stdin: print('0.5', flush=True)", "0 scores of 2 captions"),
        (meteor, "sys.exit(1)", "METEOR's Java program failed"),
        (
            spice,
            r"sys.exit('Exception in thread \"main\" java.lang.Wrong: module\n\tat a.b(c.java)')",
            "SPICE's Java program failed: Exception in .*: module$",
        ),
        (spice, "pass", "SPICE's Java program failed: its scores cannot be read"),
    ],
)
def test_a_program_that_fails(
    metric: Callable[..., Metric],
    code: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    stand_in(tmp_path, code, monkeypatch)
    with pytest.raises(UserError, match=sentence) as refusal:
        metric([["a"], ["b"]], [[["a"]], [["b"]]])
    assert "\n" not in str(refusal.value)
    assert capfd.readouterr() == ("", "")
