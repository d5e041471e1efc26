"""Calibration: fitted on every split, measured by cross-fitting, unsure of pictures of nothing."""

import json
from typing import Any
from unittest.mock import Mock

import pytest
from samples import Patch, make_captioner, photo

from captioner.caption.confidence import Confidence
from captioner.data.example import Example
from captioner.evaluation import calibration
from captioner.evaluation.calibration import calibrate
from captioner.text.languages import FUNCTION_WORDS


def examples(first: int, count: int, caption: str = "a brown dog runs") -> list[Example]:
    return [Example(f"{n}.jpg", photo(n), (caption,)) for n in range(first, first + count)]


def test_a_model_gets_its_confidence() -> None:
    model = make_captioner()
    validation = {"dogs": examples(100, 21), "men": examples(200, 11, "two men")}
    report = calibrate(model, examples(0, 24), validation)
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


def test_word_confidences_that_choose_captions_are_fitted_first(monkeypatch: Patch) -> None:
    model = make_captioner()
    model.search = model.search.replace(truth_weight=9.0)
    observe = Mock(side_effect=calibration._observe_all)
    monkeypatch.setattr(calibration, "_observe_all", observe)
    for count in (2, 3):
        calibrate(model, examples(0, 24), {"all": examples(100, 20)})
        assert observe.call_count == count


def test_no_picture_is_judged_by_a_confidence_fitted_to_it(monkeypatch: Patch) -> None:
    fitted: dict[int, set[int]] = {}
    judged: list[tuple[int, set[int]]] = []
    fit, reliability = calibration._fit, calibration._reliability

    def record_fit(groups: Any, limit: float) -> Confidence:
        confidence = fit(groups, limit)
        fitted[id(confidence)] = {id(each.caption) for group in groups for each in group}
        kept.append(confidence)
        return confidence

    def record_judged(parts: Any) -> Any:
        judged.extend((id(of), {id(each.caption) for each in part}) for of, part in parts)
        return reliability(parts)

    kept: list[Confidence] = []  # No id is used twice.
    monkeypatch.setattr(calibration, "_fit", record_fit)
    monkeypatch.setattr(calibration, "_reliability", record_judged)
    calibrate(make_captioner(), examples(0, 24), {"all": examples(100, 20)})
    assert len(judged) == 4  # Two halves of the photos and of the pictures of nothing.
    for confidence, captions in judged:
        assert captions
        assert captions.isdisjoint(fitted[confidence])
    first, second, final = fitted.values()
    assert final == first | second
