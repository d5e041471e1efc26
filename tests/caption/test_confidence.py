"""The confidence of captions: by hand, recovered where it is known, saved and loaded."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from folder_samples import config_of
from safetensors.torch import load_file, save_file
from samples import assert_same_captions, make_captioner, photo

from captioner.caption import Caption, load_model, save_model
from captioner.caption.confidence import (
    Confidence,
    ConfidenceWeights,
    confidences,
    fit_weights,
    regressors,
)
from captioner.caption.folder import save_confidence

WEIGHTS = ConfidenceWeights(
    intercept=1.0, mean_log_probability=0.5, lowest_log_probability=0.25, words=-0.125
)
CAPTION = Caption(
    "a dog runs", ("a", "dog", "runs"), -4.0, (-0.5, -2.0, -1.0), torch.zeros(3, 1, 1)
)
PHOTOS = [photo(seed, (90, 80)) for seed in range(12)]


def logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def test_a_confidence_by_hand() -> None:
    # The mean of four log-probabilities, the ending's among them, is -1.
    expected = logistic(1.0 + 0.5 * -1.0 + 0.25 * -2.0 - 0.125 * 3)
    for limit in (expected - 0.01, expected + 0.01):
        (judged,) = Confidence(weights=WEIGHTS, unsure_below=limit).judge([CAPTION])
        assert judged.confidence == pytest.approx(expected)
        assert judged.sure is (limit < expected)
        assert judged == replace(CAPTION, confidence=judged.confidence, sure=judged.sure)


def test_the_words_for_a_doubt() -> None:
    assert CAPTION.doubt == ""
    assert replace(CAPTION, confidence=0.9, sure=True).doubt == ""
    unsure = replace(CAPTION, confidence=0.1, sure=False)
    assert unsure.doubt == "not sure"
    german = replace(CAPTION, sure=False, language="de")
    assert (german.doubt, german.drawn_doubt) == ("not sure", "nicht sicher")
    assert replace(german, language="it").drawn_doubt == "not sure"
    assert "confidence" not in CAPTION.as_dict()
    assert unsure.as_dict()["confidence"] == 0.1
    assert unsure.as_dict()["sure"] is False


def test_a_caption_without_words_has_a_confidence() -> None:
    nothing = Caption("", (), -0.5, (), torch.zeros(0, 1, 1))
    assert regressors([nothing]).tolist() == [[-0.5, -0.5, 0.0]]


def test_known_probabilities_are_recovered() -> None:
    """Shares drawn from a known regression: the weights come back, and so do the shares."""
    random = numpy.random.default_rng(0)
    features = torch.tensor(random.normal((-1, -3, 9), (0.3, 1, 2), (8000, 3)))
    truth = ConfidenceWeights(
        intercept=2.0, mean_log_probability=1.5, lowest_log_probability=0.3, words=-0.1
    )
    expected = confidences(features, truth)
    shares = torch.tensor(random.binomial(5, expected.numpy()) / 5)
    found = fit_weights(features, shares)
    for name in ("mean_log_probability", "lowest_log_probability", "words"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), abs=0.12)
    apart = (confidences(features, found) - expected).abs()
    assert float(apart.max()) < 0.05
    assert found == fit_weights(features, shares)


def test_counts_are_as_good_as_repetition() -> None:
    random = numpy.random.default_rng(1)
    features = torch.tensor(random.normal(0, 1, (60, 3)))
    shares = torch.tensor(random.uniform(0, 1, 60))
    counts = torch.tensor(random.integers(1, 4, 60)).double()
    repeated = counts.long()
    again = fit_weights(
        features.repeat_interleave(repeated, 0), shares.repeat_interleave(repeated), ridge=0
    )
    once = fit_weights(features, shares, counts, ridge=0)
    assert dict(once) == pytest.approx(dict(again), abs=1e-6)


def test_captions_of_a_search_carry_it_and_given_sentences_do_not() -> None:
    model = make_captioner()
    assert model.caption(PHOTOS[:1])[0].confidence is None
    model.confidence = Confidence(weights=WEIGHTS)
    together = model.caption(PHOTOS, beam=3, n_best=3, maximum_length=6)
    alone = [model.caption([photo], beam=3, n_best=3, maximum_length=6)[0] for photo in PHOTOS]
    assert_same_captions(together, alone)
    assert all(each.confidence is not None for one in together for each in one.alternatives)
    (given,) = model.teacher_forced(model.annotations(PHOTOS[:1]), [["a", "dog"]])
    assert given.confidence is None


# In a model folder.


@pytest.fixture
def calibrated(tmp_path: Path) -> Path:
    """The folder of a model with a confidence."""
    model = make_captioner()
    model.confidence = Confidence(weights=WEIGHTS)
    save_model(model, tmp_path / "calibrated")
    return tmp_path / "calibrated"


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    model = make_captioner()
    model.confidence = Confidence(weights=WEIGHTS, unsure_below=0.4)
    save_model(model, tmp_path, torch.float32)
    loaded = load_model(tmp_path)
    assert loaded.confidence == model.confidence
    assert_same_captions(loaded.caption(PHOTOS), model.caption(PHOTOS))


def test_it_is_written_into_a_folder_and_all_else_stays(tiny_model: Path) -> None:
    def others() -> dict[str, bytes]:
        names = ("model.safetensors", "vocabulary.json", "README.md")
        return {name: (tiny_model / name).read_bytes() for name in names}

    before = others()
    for unsure_below in (0.25, 0.4):  # The second time it replaces the first.
        confidence = Confidence(weights=WEIGHTS, unsure_below=unsure_below)
        save_confidence(confidence, tiny_model)
        assert load_model(tiny_model).confidence == confidence
    assert others() == before


def test_a_model_of_version_0_2_0_takes_every_photo_as_ordinary(calibrated: Path) -> None:
    with config_of(calibrated) as config:
        config["confidence"]["familiarity"] = {"components": 2, "floor": 0.1}
        config["confidence"]["weights"] |= {"unusualness": -0.2, "oddness": -3.0}
    path = calibrated / "model.safetensors"
    names = ("mean", "scale", "basis", "variances")
    of_photos = {f"confidence.familiarity.{name}": torch.ones(2) for name in names}
    save_file(load_file(path) | of_photos, path)
    model = load_model(calibrated)
    assert model.confidence == Confidence(weights=WEIGHTS)
    save_model(model, calibrated)
    assert load_file(path).keys().isdisjoint(of_photos)
    assert load_model(calibrated).confidence == model.confidence
