"""Calibration: what is observed of captions, what is fitted, what is measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy
import pytest
import torch
from PIL import Image
from samples import make_captioner

import captioner
from captioner.caption import Caption
from captioner.caption.familiarity import FEATURES
from captioner.data.outliers import OUTLIER_KINDS, draw_outliers
from captioner.data.source import Source
from captioner.errors import UserError
from captioner.recipes.calibration import (
    CalibrationOptions,
    Observed,
    calibrate,
    content_share,
    fit_confidence,
)
from captioner.recipes.sources import read_split

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "flickr8k"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the real data are not at hand")

OPTIONS = CalibrationOptions(outliers=2, batch_size=5)


def photo(seed: int) -> Image.Image:
    colours = numpy.random.default_rng(seed).integers(0, 255, (6, 8, 3), numpy.uint8)
    return Image.fromarray(colours).resize((90, 80))


def source(first: int, count: int) -> Source:
    return Source(
        image_ids=[f"{first + row}.jpg" for row in range(count)],
        captions=[["a brown dog runs", "two men in red"]] * count,
        words=[[["a", "brown", "dog", "runs"], ["two", "men", "in", "red"]]] * count,
        open_photo=lambda row: photo(first + row),
    )


@pytest.mark.parametrize(
    ("words", "share"),
    [
        ("a brown dog runs on the water", 3 / 4),
        ("the dog", 1.0),
        ("a man on the water", 0.0),
        ("dog dog man", 2 / 3),
        ("dogs", 0.0),
        ("on the", None),
        ("", None),
    ],
)
def test_the_share_of_content_words_that_people_use(words: str, share: float | None) -> None:
    references = [["a", "brown", "dog", "runs"], ["two", "men", "on", "the", "grass"]]
    assert content_share(words.split(), references) == share


def test_a_model_gets_its_confidence() -> None:
    model = make_captioner()
    report = calibrate(model, source(0, 24), source(100, 20), OPTIONS)
    assert model.confidence is not None
    assert report.fitted == 10
    assert report.photos.count == 10
    assert set(report.families) == {"noise", "plain", "screenshots", "drawings"}
    held_out = {kind.name for kind in OUTLIER_KINDS if kind.held_out}
    assert set(report.kinds) == held_out
    assert all(0 <= (group.auroc or 0) <= 1 for group in report.kinds.values())
    assert sum(each.count for each in report.reliability.bins) == 10
    plain = json.loads(json.dumps(report.as_dict()))
    assert plain["families"]["noise"]["count"] == 4
    table = report.table()
    assert "expected calibration error" in table
    assert "page of text" in table
    assert "pixel noise" not in table  # It was fitted to.
    (caption,) = model.caption([photo(100)])
    assert 0 <= (caption.confidence or 0) <= 1


def test_the_same_again_gives_the_same() -> None:
    first, again = make_captioner(), make_captioner()
    calibrate(first, source(0, 24), source(100, 20), OPTIONS)
    calibrate(again, source(0, 24), source(100, 20), replace(OPTIONS))
    assert first.confidence is not None
    assert again.confidence is not None
    assert first.confidence.config == again.confidence.config
    before = first.confidence.config
    calibrate(first, source(0, 24), source(100, 20), OPTIONS)  # It had one already.
    assert first.confidence is not None
    assert first.confidence.config == before


def test_known_shares_come_back_and_outliers_are_told_apart() -> None:
    """Photos whose captions are right as often as their log-probability says; outliers afar."""
    random = numpy.random.default_rng(0)

    def captions(means: numpy.ndarray) -> list[Caption]:
        return [
            Caption("", ("a", "b"), 3 * float(mean), (float(mean),) * 2, torch.zeros(0))
            for mean in means
        ]

    def features(count: int, away: float) -> torch.Tensor:
        return torch.tensor(random.lognormal(away, 1, (count, FEATURES)))

    means = random.uniform(-2, 0, 600)
    truth = 1 / (1 + numpy.exp(-(2 + 2 * means)))
    shares = (random.binomial(4, truth) / 4).tolist()
    outliers = [Observed(captions(random.uniform(-2, 0, 50)), features(50, 3.0), [0.0] * 50)]
    found = fit_confidence(
        features(300, 0.0), Observed(captions(means), features(600, 0.0), shares), outliers
    )
    level = found.familiarity.unusualness(features(200, 0.0)).tolist()
    new = captions(numpy.full(200, -0.5))
    score = [found.judge([each], value)[0] for each, value in zip(new, level, strict=True)]
    assert numpy.mean([each.confidence for each in score]) == pytest.approx(0.731, abs=0.05)
    assert sum(each.familiar or False for each in score) > 180
    away = found.familiarity.unusualness(features(20, 2.0)).tolist()
    for each, value in zip(new, away, strict=False):
        told = found.judge([each], value)[0]
        assert told.doubt == "not sure: unlike the photos this model was trained on"


@pytest.mark.parametrize(
    ("training", "validation", "sentence"),
    [
        (source(0, 7), source(100, 20), "8 training photos or more, and there are 7"),
        (source(0, 24), source(100, 7), "8 validation photos or more, and there are 7"),
        (source(0, 24), source(20, 20), "4 photos are in both .*'20.jpg'"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(
    training: Source, validation: Source, sentence: str
) -> None:
    with pytest.raises(UserError, match=sentence):
        calibrate(make_captioner(), training, validation, OPTIONS)


@pytest.mark.parametrize(
    ("field", "value"),
    [("training_photos", 7), ("outliers", 0), ("batch_size", 0), ("seed", -1), ("unsure_below", 2)],
)
def test_an_option_out_of_range_is_named(field: str, value: float) -> None:
    with pytest.raises(UserError, match=field.replace("_", "[ _]")):
        CalibrationOptions(**{field: value})  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.data
@needs_data
def test_the_packaged_model_is_unsure_of_what_is_no_photo() -> None:
    training, validation = (
        read_split("flickr8k", DATA / "Flickr8k.token.txt", DATA / "images", DATA / f"{split}.txt")
        for split in ("train", "val")
    )
    model = captioner.load()
    options = CalibrationOptions(training_photos=150, outliers=6)
    report = calibrate(model, training, validation.first(120), options)
    for family, least in (("noise", 0.95), ("plain", 0.95), ("screenshots", 0.9)):
        assert (report.families[family].auroc or 0) > least, family
    assert (report.families["drawings"].auroc or 0) > 0.8
    assert report.photos.unsure < 0.5
    noise = next(kind for kind in OUTLIER_KINDS if kind.name == "grey noise")
    told = model.caption(draw_outliers(noise, 6, 99))
    assert sum(caption.doubt != "" for caption in told) >= 5
    for family in report.families.values():
        assert family.confidence < 0.7 * report.photos.confidence
