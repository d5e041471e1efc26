"""The confidence of captions: by hand, recovered where it is known, saved and loaded."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from folder_samples import config_of, refused
from safetensors.torch import load_file, save_file
from samples import assert_same_captions, make_captioner, photo

from captioner.caption import Caption, Captioner, load_model, save_model
from captioner.caption import captioner_folder as model_folder_module
from captioner.caption.captioner_folder import save_confidence
from captioner.caption.confidence import (
    ODD,
    Confidence,
    ConfidenceConfig,
    ConfidenceWeights,
    Familiarity,
    confidences,
    fit_weights,
    pooled_features,
    regressors,
)

WEIGHTS = ConfidenceWeights(
    intercept=1.0,
    mean_log_probability=0.5,
    lowest_log_probability=0.25,
    words=-0.125,
    unusualness=-0.2,
    oddness=-3.0,
)
CAPTION = Caption(
    "a dog runs", ("a", "dog", "runs"), -4.0, (-0.5, -2.0, -1.0), torch.zeros(3, 1, 1)
)
PHOTOS = [photo(seed, (90, 80)) for seed in range(12)]


def logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def make_confidence(model: Captioner, unsure_below: float = 0.25) -> Confidence:
    """One that knows the photos as familiar."""
    features = pooled_features(model.annotations(PHOTOS))
    familiarity = Familiarity.fit(features, features + 0.01)
    config = ConfidenceConfig(
        familiarity=familiarity.config, weights=WEIGHTS, unsure_below=unsure_below
    )
    return Confidence(config, familiarity)


def test_a_confidence_by_hand() -> None:
    familiarity = Familiarity.fit(torch.rand(9, 8), torch.rand(9, 8))
    limit = familiarity.config.replace(unfamiliar_above=2.0)
    confidence = Confidence(ConfidenceConfig(familiarity=limit, weights=WEIGHTS), familiarity)
    usual, odd = (confidence.judge([CAPTION], value)[0] for value in (-1.0, 2.5))
    # The mean of four log-probabilities, the ending's among them, is -1.
    base = 1.0 + 0.5 * -1.0 + 0.25 * -2.0 - 0.125 * 3
    assert usual.confidence == pytest.approx(logistic(base + 0.2))
    assert odd.confidence == pytest.approx(logistic(base - 0.2 * 2.5 - 3.0 * (2.5 - ODD)))
    assert (usual.familiar, odd.familiar) == (True, False)
    assert (usual.sure, odd.sure) == (True, False)
    assert usual == replace(CAPTION, confidence=usual.confidence, sure=True, familiar=True)


def test_the_words_for_a_doubt() -> None:
    assert CAPTION.doubt == ""
    assert replace(CAPTION, confidence=0.9, sure=True, familiar=True).doubt == ""
    assert replace(CAPTION, confidence=0.1, sure=False, familiar=True).doubt == "not sure"
    unlike = replace(CAPTION, confidence=0.1, sure=True, familiar=False)
    assert unlike.doubt == "not sure: unlike the photos this model was trained on"
    german = replace(CAPTION, sure=False, language="de")
    assert (german.doubt, german.drawn_doubt) == ("not sure", "nicht sicher")
    assert replace(german, language="it").drawn_doubt == "not sure"
    assert "confidence" not in CAPTION.as_dict()
    assert unlike.as_dict()["confidence"] == 0.1
    assert unlike.as_dict()["familiar"] is False


def test_a_caption_without_words_has_a_confidence() -> None:
    nothing = Caption("", (), -0.5, (), torch.zeros(0, 1, 1))
    assert regressors([nothing], [0.0]).tolist() == [[-0.5, -0.5, 0.0, 0.0, 0.0]]


def test_known_probabilities_are_recovered() -> None:
    """Shares drawn from a known regression: the weights come back, and so do the shares."""
    random = numpy.random.default_rng(0)
    features = torch.tensor(random.normal((-1, -3, 9, 0, 0), (0.3, 1, 2, 1, 1), (8000, 5)))
    truth = ConfidenceWeights(
        intercept=2.0,
        mean_log_probability=1.5,
        lowest_log_probability=0.3,
        words=-0.1,
        unusualness=-0.4,
        oddness=-0.8,
    )
    expected = confidences(features, truth)
    shares = torch.tensor(random.binomial(5, expected.numpy()) / 5)
    found = fit_weights(features, shares)
    for name in ("mean_log_probability", "lowest_log_probability", "words", "unusualness"):
        assert getattr(found, name) == pytest.approx(getattr(truth, name), abs=0.12)
    apart = (confidences(features, found) - expected).abs()
    assert float(apart.max()) < 0.05
    assert found == fit_weights(features, shares)


def test_counts_are_as_good_as_repetition() -> None:
    random = numpy.random.default_rng(1)
    features = torch.tensor(random.normal(0, 1, (60, 5)))
    shares = torch.tensor(random.uniform(0, 1, 60))
    counts = torch.tensor(random.integers(1, 4, 60)).double()
    repeated = counts.long()
    again = fit_weights(
        features.repeat_interleave(repeated, 0), shares.repeat_interleave(repeated), ridge=0
    )
    once = fit_weights(features, shares, counts, ridge=0)
    assert dict(once) == pytest.approx(dict(again), abs=1e-6)


def test_groups_that_are_told_apart_leave_the_weights_finite() -> None:
    features = torch.zeros(40, 5, dtype=torch.float64)
    features[20:, 3] = 50.0
    shares = torch.tensor([0.5] * 20 + [0.0] * 20).double()
    found = fit_weights(features, shares)
    assert all(map(math.isfinite, dict(found).values()))
    low, high = confidences(features[[39, 0]], found).tolist()
    assert low < 0.1
    assert high == pytest.approx(0.5, abs=0.1)


def test_captions_of_a_search_carry_it_and_given_sentences_do_not() -> None:
    model = make_captioner()
    assert model.caption(PHOTOS[:1])[0].confidence is None
    model.confidence = make_confidence(model)
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
    model.confidence = make_confidence(model)
    save_model(model, tmp_path / "calibrated")
    return tmp_path / "calibrated"


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    model = make_captioner()
    model.confidence = make_confidence(model)
    for dtype in (torch.float16, torch.float32):  # Its tensors are in float32 in both.
        save_model(model, tmp_path, dtype)
        loaded = load_model(tmp_path)
        assert loaded.confidence.config == model.confidence.config
        torch.testing.assert_close(
            loaded.confidence.state_dict(), model.confidence.state_dict(), rtol=0, atol=0
        )
    assert_same_captions(loaded.caption(PHOTOS), model.caption(PHOTOS))


def test_it_is_written_into_a_folder_and_all_else_stays(tiny_model: Path) -> None:
    before = load_file(tiny_model / "model.safetensors")
    others = {name: (tiny_model / name).read_bytes() for name in ("vocabulary.json", "README.md")}
    model = load_model(tiny_model)
    for unsure_below in (0.25, 0.4):  # The second time it replaces the first.
        confidence = make_confidence(model, unsure_below)
        save_confidence(confidence, tiny_model)
        loaded = load_model(tiny_model)
        assert loaded.confidence.config == confidence.config
    after = load_file(tiny_model / "model.safetensors")
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert {name.split(".")[0] for name in after.keys() - before.keys()} == {"confidence"}
    assert all((tiny_model / name).read_bytes() == content for name, content in others.items())


def test_a_stop_while_writing_leaves_the_old_confidence(
    calibrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power losses, after which the new one may be there too, are tested for whole models."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    model = load_model(calibrated)
    monkeypatch.setattr(model_folder_module, "write_json", stop)
    with pytest.raises(KeyboardInterrupt):
        save_confidence(make_confidence(model, 0.4), calibrated)
    assert load_model(calibrated).confidence.config == model.confidence.config


def test_numbers_without_their_tensors_are_refused(calibrated: Path) -> None:
    """Otherwise a calibrated model would be taken for one that was not, and say nothing of it."""
    path = calibrated / "model.safetensors"
    bare = {key: each for key, each in load_file(path).items() if not key.startswith("confidence.")}
    save_file(bare, path)
    assert "tensor 'confidence.familiarity.basis'" in refused(calibrated, "model.safetensors")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"unsure_below": 2}, "confidence.unsure_below 2 is not at most 1"),
        ({"weights": {}}, "field 'confidence.weights.intercept' is missing"),
    ],
)
def test_a_wrong_number_is_named(
    calibrated: Path, change: dict[str, object], sentence: str
) -> None:
    with config_of(calibrated) as config:
        config["confidence"].update(change)
    assert sentence in refused(calibrated, "config.json")
