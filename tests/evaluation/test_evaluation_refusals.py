"""What evaluation refuses, each in one sentence."""

import importlib.util
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from samples import Patch, make_captioner, photo, write_captions, write_instances

from captioner.data.example import Example
from captioner.errors import UserError
from captioner.evaluation.calibration import calibrate
from captioner.evaluation.coco_metrics import DocumentFrequency, check_java_metric
from captioner.evaluation.corpus import Metric, compare, confidence_intervals
from captioner.evaluation.maps import map_spread
from captioner.evaluation.score import Scorer, evaluate_captions, read_results, score_results
from captioner.evaluation.translations import evaluate_translations

ALONE = [Metric.mean("x", np.array([0.5]))]
EXAMPLES = [Example(f"{n}.jpg", photo(n), ("a dog",)) for n in range(7)]
ONE = '{"image_id": 1, "caption": "a"}'
NO_STRINGS = "image 0 needs a caption and a list of references, of strings"


def scored(captions: Any, references: Any, metric: str = "BLEU") -> Callable[[], object]:
    return partial(evaluate_captions, captions, references, metrics=[metric])


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (scored([None], [["a"]]), NO_STRINGS),
        (scored(["a"], ["a dog"]), NO_STRINGS),
        (scored(["a"], [[]]), NO_STRINGS),
        (scored(["a"], [["a"], ["b"]]), "1 captions and references for 2 images; give"),
        (scored([], []), "for 0 images; give one image or more, and one"),
        (scored(["a"], [["a"]], "CIDEr-D"), "single image .*--document-frequency FILE"),
        (scored(["a"], [["a"]], "CIDEr"), "metric 'CIDEr' is not one of BLEU, ROUGE-L, CIDEr-D"),
        (partial(Scorer, confidence=1.0), "confidence 1.0 is not between 0 and 1"),
        (partial(confidence_intervals, ALONE), "a single image"),
        (partial(compare, ALONE, ALONE), "a single image"),
        (partial(DocumentFrequency.from_references, [[["a"]]]), "at least 2 images, not 1"),
        (partial(map_spread, [np.empty((0, 2, 4))]), "not one caption has a word"),
        (partial(calibrate, make_captioner(), {"val": EXAMPLES}), "8 capt.* for val, of 7 photos"),
    ],
)
def test_scores_that_cannot_be_computed(work: Callable[[], object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        work()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "is not a list of captions"),
        (f"[{ONE}, 3]", "record 1 lacks image_id, a whole"),
        ('[{"image_id": true, "caption": "a"}]', "record 0 lacks image_id"),
        ('[{"image_id": 1, "caption": null}]', "or caption, a text"),
        (f'[{ONE}, {{"image_id": "1", "caption": "b"}}]', "record 1: image '1' already has a"),
    ],
)
def test_results_files(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(UserError, match=f"{re.escape(str(path))}.*{sentence}"):
        read_results(path)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    references = write_captions(tmp_path / "references.json", {n: ["a dog"] for n in range(3)})
    files = {}
    for count in (2, 3, 4):
        records = [f'{{"image_id": {n}, "caption": "a dog"}}' for n in range(count)]
        files[count] = tmp_path / f"{count}.json"
        files[count].write_text(f"[{', '.join(records)}]")
    with pytest.raises(UserError, match=r"4\.json has 1 image without references in .*\(image 3\)"):
        score_results(files[4], references)
    for ours, theirs in ((2, 3), (3, 2)):
        with pytest.raises(UserError, match=rf"/{ours}.* and .*/{theirs}.* in 1, image 2 for one"):
            score_results(files[ours], references, Scorer(against=files[theirs]))
    few = write_instances(tmp_path / "few.json", {0: [], 1: []}, ["dog"])
    with pytest.raises(UserError, match=r"image 2 is not in instance file .*few\.json"):
        score_results(files[3], references, Scorer(instances=[few]))


def test_missing_packages_and_programs_are_named(tmp_path: Path, monkeypatch: Patch) -> None:
    """The models of SPICE, of 400 MB, are named and not fetched."""
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(UserError, match=r'sacrebleu: pip install "captioner\[translate\]"'):
        evaluate_translations(["a"], ["a"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r'SPICE needs .*pip install "captioner\[java\]"'):
        evaluate_captions(["a"], [["a"]], metrics=["SPICE"])
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match=r"METEOR needs .* and the program java"):
        check_java_metric("METEOR")
    monkeypatch.setattr("shutil.which", lambda name: "/bin/java")
    library = tmp_path / "spice" / "lib"
    library.mkdir(parents=True)
    with pytest.raises(UserError, match=r"needs .*stanford-corenlp-3\.6\.0-models\.jar; .*get_st"):
        check_java_metric("SPICE")
    (library / "stanford-corenlp-3.6.0-models.jar").touch()
    check_java_metric("SPICE")
