"""What evaluation refuses, each in one sentence."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from coco_samples import write_captions, write_instances
from samples import make_captioner, photo

from captioner.data.example import Example
from captioner.errors import UserError
from captioner.evaluation.calibration import calibrate
from captioner.evaluation.cider import DocumentFrequency
from captioner.evaluation.corpus import Metric
from captioner.evaluation.java_metrics import check_java_metric
from captioner.evaluation.map_scores import map_spread
from captioner.evaluation.score import evaluate_captions
from captioner.evaluation.scorer import Scorer, read_results, score_results
from captioner.evaluation.significance import compare, confidence_intervals
from captioner.evaluation.translations import evaluate_translations


@pytest.mark.parametrize(
    ("captions", "references", "metrics", "sentence"),
    [
        (["a", None], [["a"], ["b"]], ["BLEU"], "a caption of image 1 is not a string"),
        (["a"], [["a"], ["b"]], ["BLEU"], "1 captions but references for 2 images"),
        (["a", "b"], [None, ["b"]], ["BLEU"], "image 0 has no list of reference captions"),
        (["a"], ["a dog"], ["BLEU"], "image 0 has no list of reference captions"),
        (["a"], [[]], ["BLEU"], "image 0 has no list of reference captions"),
        ([], [], ["BLEU"], "no captions to score"),
        (["a"], [["a"]], ["CIDEr-D"], "single image .*--document-frequency FILE"),
        (["a"], [["a"]], ["CIDEr"], "metric 'CIDEr' is not one of BLEU, ROUGE-L, CIDEr-D"),
    ],
)
def test_captions(captions: Any, references: Any, metrics: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        evaluate_captions(captions, references, metrics=metrics)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"image_id": 1, "caption": "a"}', "is not a list of captions"),
        ("[]", "is not a list of captions"),
        ('[{"image_id": 1, "caption": "a"}, 3]', "record 1 does not have image_id and caption"),
        ('[{"caption": "a"}]', "record 0 does not have image_id and caption"),
        ('[{"image_id": 1.5, "caption": "a"}]', "image_id 1.5 is neither"),
        ('[{"image_id": true, "caption": "a"}]', "image_id True is neither"),
        ('[{"image_id": 1, "caption": null}]', "caption of image 1 is not a string"),
        (
            '[{"image_id": 1, "caption": "a"}, {"image_id": "1", "caption": "b"}]',
            "record 1: image '1' already has a caption",
        ),
        ("[", "is not valid JSON"),
    ],
)
def test_results_files(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(UserError, match=sentence) as refusal:
        read_results(path)
    assert str(path) in str(refusal.value)


def test_scorers(tmp_path: Path) -> None:
    for options in ({"confidence": 0.9}, {"against": "other.json"}):
        with pytest.raises(UserError, match="METEOR has no interval and no comparison"):
            Scorer(["METEOR"], **options)
    (tmp_path / "people.txt").write_text("\n \n", encoding="utf-8")
    with pytest.raises(UserError, match=r"people\.txt has no captions; give people's, one a line"):
        Scorer(fluency=tmp_path / "people.txt")


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    references = write_captions(tmp_path / "references.json", {n: ["a dog"] for n in range(3)})
    files = {}
    for count in (2, 3, 4):
        records = [f'{{"image_id": {n}, "caption": "a dog"}}' for n in range(count)]
        files[count] = tmp_path / f"{count}.json"
        files[count].write_text(f"[{', '.join(records)}]")
    with pytest.raises(UserError, match=r"4\.json has 1 image .*\(image 3 has no references in"):
        score_results(files[4], references)
    for ours, theirs in ((2, 3), (3, 2)):
        with pytest.raises(UserError, match=rf"/{ours}.* and .*/{theirs}.* in 1, image 2 for one"):
            score_results(files[ours], references, Scorer(against=files[theirs]))
    few = write_instances(tmp_path / "few.json", {0: [], 1: []}, ["dog"])
    with pytest.raises(UserError, match=r"image 2 is not in instance file .*few\.json"):
        score_results(files[3], references, Scorer(instances=[few]))


def test_too_little_to_compute_with() -> None:
    alone = [Metric.mean("x", np.array([0.5]))]
    with pytest.raises(UserError, match="a single image"):
        confidence_intervals(alone)
    with pytest.raises(UserError, match="a single image"):
        compare(alone, alone)
    with pytest.raises(UserError, match="needs at least 2 images, not 1"):
        DocumentFrequency.from_references([[["a"]]])
    with pytest.raises(UserError, match="not one caption has a word"):
        map_spread([np.empty((0, 2, 4))])
    with pytest.raises(UserError, match="no translation to score"):
        evaluate_translations([], [])


@pytest.mark.parametrize(
    ("first", "count", "sentence"),
    [
        (100, 7, "8 photos of each split or more, and val has 7"),
        (20, 20, "val shares 4 photos with training, '20.jpg' among"),
    ],
)
def test_calibration(first: int, count: int, sentence: str) -> None:
    examples = [Example(f"{n}.jpg", photo(n), ("a dog",)) for n in range(first + count)]
    with pytest.raises(UserError, match=sentence):
        calibrate(make_captioner(), examples[:24], {"val": examples[first:]})


def test_packages_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for metric in ("METEOR", "SPICE"):
        with pytest.raises(UserError, match=f'{metric} needs .* pip install "captioner.java]"'):
            evaluate_captions(["a"], [["a"]], metrics=[metric])
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UserError, match=r'sacrebleu: pip install "captioner\[translate\]"'):
        evaluate_translations(["a"], ["a"])


def test_missing_java_and_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The models, of 400 MB, are named and not fetched."""
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match=r"METEOR needs Java, .* no program named java"):
        check_java_metric("METEOR")
    monkeypatch.setattr("shutil.which", lambda name: "/bin/java")
    library = tmp_path / "spice" / "lib"
    library.mkdir(parents=True)
    (library / "stanford-corenlp-3.6.0.jar").touch()
    with pytest.raises(UserError, match=r"needs stanford-corenlp-3\.6\.0-models\.jar in .*get_st"):
        check_java_metric("SPICE")
    (library / "stanford-corenlp-3.6.0-models.jar").touch()
    check_java_metric("SPICE")
