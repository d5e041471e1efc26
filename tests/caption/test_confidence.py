"""The confidence of captions: by hand, recovered where it is known, saved and loaded."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from samples import confidence_weights, make_captioner, photo

from captioner.caption.caption import Caption
from captioner.caption.confidence import (
    Confidence,
    ConfidenceWeights,
    WordWeights,
    confidences,
    fit_weights,
    fit_word_weights,
    regressors,
    sure_nouns,
)

WEIGHTS = confidence_weights(1.0, 0.5, 0.75, 0.25, -0.125)
CAPTION = Caption(
    "a dog runs", ("a", "dog", "runs"), -4.0, (-0.5, -2.0, -1.0), torch.zeros(3, 1, 1)
)
PHOTOS = [photo(seed, (90, 80)) for seed in range(3)]


def test_a_confidence_by_hand() -> None:
    # The mean of four log-probabilities, the ending's among them, is -1, of content words -1.5.
    logit = 1.0 + 0.5 * -1.0 + 0.75 * -1.5 + 0.25 * -2.0 - 0.125 * 3
    expected = 1 / (1 + math.exp(-logit))
    for limit in (expected - 0.01, expected + 0.01):
        (judged,) = Confidence(weights=WEIGHTS, unsure_below=limit).judge([CAPTION])
        assert judged.confidence == pytest.approx(expected)
        assert judged.sure is (limit < expected)
        assert judged == replace(CAPTION, confidence=judged.confidence, sure=judged.sure)
    nothing = Caption("", (), -0.5, (), torch.zeros(0, 1, 1))
    assert regressors([nothing]).tolist() == [[-0.5, -0.5, -0.5, 0.0]]


def test_the_confidence_of_words_by_hand() -> None:
    weights = WordWeights(
        intercept=0.5, probability=2, caption=0.25, both=1, position=-0.5, offsets={"runs": -0.75}
    )
    confidence = Confidence(weights=WEIGHTS, words=weights)
    (judged,) = confidence.judge([CAPTION])
    assert judged.confidence is not None
    caption = math.log(judged.confidence / (1 - judged.confidence))
    dog, runs = math.exp(-2.0), math.exp(-1.0)
    of_dog = 0.5 + 2 * dog + 0.25 * caption + dog * caption - 0.5
    of_runs = 0.5 + 2 * runs + 0.25 * caption + runs * caption - 1 - 0.75
    expected = [1 / (1 + math.exp(-logit)) for logit in (of_dog, of_runs)]
    assert judged.word_confidence is not None
    assert judged.word_confidence[0] is None
    assert judged.word_confidence[1:] == pytest.approx(expected)
    assert judged.to_dict()["word_confidence"] == [None, *judged.word_confidence[1:]]
    (plain,) = Confidence(weights=WEIGHTS).judge([CAPTION])
    assert plain.word_confidence is None
    assert "word_confidence" not in plain.to_dict()


@pytest.mark.parametrize("limit", range(1, 100))
def test_no_rounding_crosses_the_limit(limit: int) -> None:
    model = Confidence(weights=WEIGHTS, unsure_below=limit / 100)
    for away in (-0.004, -1e-9, 0, 1e-9, 0.004):
        share = limit / 100 + away
        made = replace(CAPTION, confidence=share, sure=share >= model.unsure_below)
        assert made.shown_confidence is not None
        assert (made.shown_confidence >= model.unsure_below) == made.sure
        assert abs(made.shown_confidence - share) < 0.01


def test_the_words_for_a_doubt() -> None:
    assert CAPTION.doubt == replace(CAPTION, confidence=0.9, sure=True).doubt == ""
    german = replace(CAPTION, confidence=0.1, sure=False, language="de")
    assert (german.doubt, german.drawn_doubt) == ("not sure", "nicht sicher")
    assert replace(german, language="it").drawn_doubt == "not sure"
    plain = german.to_dict()
    assert (plain["confidence"], plain["sure"]) == (0.1, False)


def test_known_probabilities_are_recovered() -> None:
    """Shares drawn from a known regression: the weights come back, and so do the shares."""
    random = np.random.default_rng(0)
    features = random.normal((-1, -2, -3, 9), (0.3, 0.5, 1, 2), (8000, 4))
    truth = confidence_weights(2.0, 1.5, 0.5, 0.3, -0.1)
    expected = confidences(features, truth)
    assert list(confidences(1e4 * features[:1], truth)) == [0]  # Does not overflow.
    shares = random.binomial(5, expected) / 5
    found = fit_weights(features, shares, np.ones_like(shares))
    for name in list(ConfidenceWeights.model_fields)[1:]:
        assert getattr(found, name) == pytest.approx(getattr(truth, name), abs=0.12)
    assert float(abs(confidences(features, found) - expected).max()) < 0.05
    first = fit_weights(features[:60], shares[:60], np.ones(60), ridge=0)
    rest_without_weight = np.arange(8000) < 60
    again = fit_weights(features, shares, rest_without_weight, ridge=0)
    assert dict(first) == pytest.approx(dict(again), abs=1e-5)


def test_words_that_are_more_often_true_are_found() -> None:
    """Of one probability, "dog" is true in 9 of 10 captions, "cat" in 1; "owl" is too rare."""
    said = ["dog"] * 40 + ["cat"] * 40 + ["owl"] * 3
    owl = Caption("owl", ("a", "owl"), -1.5, (-0.5, -1.0), torch.zeros(2, 1, 1), confidence=0.5)
    captions = [replace(owl, words=("a", word)) for word in said]
    dogs = [number % 10 > 0 for number in range(40)]
    truth = np.array([*dogs, *(not is_true for is_true in dogs), True, True, True], float)
    weights = fit_word_weights(captions, truth, np.ones_like(truth))
    assert sorted(weights.offsets) == ["cat", "dog"]
    judged = Confidence(weights=WEIGHTS, words=weights)
    dog, cat = (judged.judge([captions[place]])[0].word_confidence for place in (0, 40))
    # The ridge keeps them from 0.9 and 0.1.
    assert dog == (None, pytest.approx(0.82, abs=0.02))
    assert cat == (None, pytest.approx(0.22, abs=0.02))


def test_a_compound_is_as_sure_as_its_last_word() -> None:
    scores = (None, 0.3, 0.7, None, None, 0.9, 0.5)
    words = ("a", "hot", "dog", "by", "a", "stop", "sign")
    caption = Caption("", words, 0.0, (), np.empty(0), word_confidence=scores)
    assert sure_nouns(caption, 0.6) == ("hot dog",)
    assert sure_nouns(replace(caption, word_confidence=None), 0.6) == ("hot dog", "stop sign")


def test_captions_of_a_search_carry_it() -> None:
    model = make_captioner()
    assert model.caption(PHOTOS[:1])[0].confidence is None
    model.confidence = Confidence(weights=WEIGHTS)
    together = model.caption(PHOTOS, beam=3, n_best=3, maximum_length=6)
    assert together == model.confidence.judge(together)
    assert None not in [each.confidence for one in together for each in one.alternatives]
    (given,) = model.caption_annotations(model.annotations(PHOTOS[:1]), given=[["a", "dog"]])
    assert given.confidence is None
