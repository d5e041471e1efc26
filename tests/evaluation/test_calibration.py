"""Calibration: fitted on every split, measured by cross-fitting, unsure of pictures of nothing."""

import json
from typing import Any

import numpy as np
import pytest
from samples import make_captioner, photo

from captioner.caption.confidence import Confidence
from captioner.data.example import Example
from captioner.evaluation.calibration import calibrate
from captioner.text.languages import FUNCTION_WORDS


def examples(first: int, count: int, caption: str = "a brown dog runs") -> list[Example]:
    return [Example(f"{n}.jpg", photo(n), (caption,)) for n in range(first, first + count)]


def test_a_model_gets_its_confidence() -> None:
    model = make_captioner()
    validation = {"dogs": examples(100, 21), "men": examples(200, 11, "two men")}
    report = calibrate(model, validation)
    assert model.confidence is not None
    splits = json.loads(json.dumps(report.to_dict()))["splits"]
    assert {name: found["photos"] for name, found in splits.items()} == {"dogs": 21, "men": 11}
    for found in splits.values():
        words = found["words"]
        of_words = [words[f"words, fifth {number}"] for number in range(1, 6)]
        both = (found["fifths"], found, "photos"), (of_words, words["all words"], "words")
        for fifths, whole, unit in both:
            assert sum(fifth[unit] for fifth in fifths) == whole[unit]
            assert fifths == sorted(fifths, key=lambda fifth: fifth["expected"])
            shares = sum(fifth["observed"] * fifth[unit] for fifth in fifths)
            assert shares / whole[unit] == pytest.approx(whole["observed"])
        assert found["sure_without"] <= 1 - found["unsure"]
        # The intercept of a logistic regression sees to it, but for the pictures of nothing.
        assert found["expected"] == pytest.approx(found["observed"], abs=0.15)
    assert "pictures of nothing: unsure" in report.table()
    assert "words, fifth 5" in report.table()
    seen = [photo(n) for n in (*range(100, 121), *range(200, 211))]
    caption, *others = model.caption(seen)
    of_all = [each.confidence or 0.0 for each in (caption, *others)]
    assert model.confidence.highest == pytest.approx(max(of_all), abs=1e-4)
    assert caption.word_confidence is not None
    for word, score in zip(caption.words, caption.word_confidence, strict=True):
        assert (score is None) == (word in FUNCTION_WORDS)


def test_word_confidences_that_choose_captions_are_fitted_first() -> None:
    """A search that weighs truth needs them: captions are chosen and fitted twice, and a
    confidence of before plays no part."""
    photos = [*examples(100, 10, "red water"), *examples(110, 10, "two dogs")]

    def fitted(*truth_weights: float) -> Confidence | None:
        model = make_captioner()
        for weight in truth_weights:
            model.search = model.search.replace(truth_weight=weight)
            calibrate(model, {"all": photos})
        return model.confidence

    assert fitted(9.0) == fitted(9.0, 9.0) == fitted(0.0, 9.0) != fitted(0.0)


def test_no_photo_is_judged_by_a_confidence_fitted_to_it() -> None:
    """The same photo ten times, so that a half of them has one confidence: the other half's."""
    (caption,) = make_captioner().caption([photo(100)])

    def fifths(*true: int) -> np.ndarray[Any, Any]:
        texts = [caption.text if number in true else "zebra" for number in range(10)]
        photos = [Example(f"{n}.jpg", photo(100), (text,)) for n, text in enumerate(texts)]
        found = calibrate(make_captioner(), {"all": photos}).splits["all"]["fifths"]
        return np.array([[fifth["expected"], fifth["observed"]] for fifth in found])

    before = fifths(0, 2, 4, 6, 8)
    for number in (3, 5):  # One of each half; the fifth in the middle is of both.
        expected, observed = np.delete(fifths(0, 2, 4, 6, 8, number) - before, 2, axis=0).T
        assert expected[observed > 0] == pytest.approx([0])
        assert expected.max() > 0.1
