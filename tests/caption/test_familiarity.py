"""How unusual a photo is: distances by hand, and what counts as familiar."""

from __future__ import annotations

import math

import pytest
import torch

from captioner.caption.confidence import Familiarity, FamiliarityConfig, pooled_features
from captioner.errors import UserError

FEATURES = 1024


def drawn(count: int, seed: int, spread: float = 1.0) -> torch.Tensor:
    """Features whose logarithms differ much in three directions and little in the others."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(3, FEATURES, generator=torch.Generator().manual_seed(9))
    along = 3 * torch.randn(count, 3, generator=generator) @ directions
    noise = torch.randn(count, FEATURES, generator=generator)
    return (0.2 * spread * (along + noise)).double().exp()


def test_features_are_means_and_deviations_over_the_places() -> None:
    annotations = torch.zeros(2, 4, 512)
    annotations[0, :, 0] = torch.tensor([1.0, 1.0, 3.0, 3.0])
    annotations[1, :, 511] = 2.0
    found = pooled_features(annotations)
    assert found.shape == (2, FEATURES)
    assert found.dtype == torch.float64
    assert found[0, [0, 512]].tolist() == [2.0, 1.0]
    assert found[1, [511, 1023]].tolist() == [2.0, 0.0]
    assert int(found.count_nonzero()) == 3


def test_places_at_the_border_do_not_count() -> None:
    """Of a map of four rows, the four places in the middle; a smaller one is all border."""
    annotations = torch.zeros(1, 16, 512)
    annotations[0, [0, 3, 7, 13], 0] = 9.0
    annotations[0, [5, 6], 1] = 2.0
    annotations[0, [9, 10], 1] = 4.0
    found = pooled_features(annotations)
    assert found[0, [1, 513]].tolist() == [3.0, 1.0]
    assert int(found.count_nonzero()) == 2
    assert int(pooled_features(annotations[:, :9]).count_nonzero()) == 4


def test_a_distance_by_hand() -> None:
    """Two directions with a variance each, the third feature among the rest."""
    config = FamiliarityConfig(
        components=2,
        floor=0.5,
        rest_variance=0.25,
        distance_mean=math.log(2.0),
        distance_deviation=0.5,
        unfamiliar_above=2.0,
    )
    found = Familiarity(config, FEATURES // 2)
    found.mean.zero_()[0] = 1.0
    found.scale.fill_(1.0)[1] = 2.0
    found.basis.copy_(torch.eye(FEATURES, 2))
    found.variances.copy_(torch.tensor([4.0, 9.0]))
    photo = torch.zeros(1, FEATURES, dtype=torch.float64)
    photo[0, :3] = torch.tensor([5.0, 12.0, 3.0])
    photo = photo.exp() - 0.5
    # 4^2 / 4 and (12 / 2)^2 / 9 inside, 3^2 / 0.25 outside
    distance = ((4 + 4) / 2 + 36 / (FEATURES - 2)) / 2
    expected = (math.log(distance) - math.log(2.0)) / 0.5
    assert float(found.unusualness(photo)) == pytest.approx(expected)


@pytest.fixture(scope="module")
def found() -> Familiarity:
    """That of many photos."""
    return Familiarity.fit(drawn(400, 0), drawn(200, 1))


def test_photos_like_the_training_photos_are_usual_and_others_are_not(found: Familiarity) -> None:
    assert found.config.components == 40
    assert torch.allclose(found.basis.T @ found.basis, torch.eye(40), atol=1e-5)
    usual = found.unusualness(drawn(300, 2))
    assert abs(float(usual.mean())) < 0.3
    assert 0.7 < float(usual.std()) < 1.3
    limit = found.config.unfamiliar_above
    assert float((usual <= limit).double().mean()) > 0.95
    assert float(found.unusualness(drawn(50, 3, spread=2.0)).min()) > limit
    shift = 0.6 * torch.randn(FEATURES, generator=torch.Generator().manual_seed(1))
    elsewhere = drawn(50, 4) * shift.exp()
    assert float(found.unusualness(elsewhere).min()) > limit


def test_less_of_everything_is_as_unusual_as_more(found: Familiarity) -> None:
    """As of noise and plain colours, whose annotation vectors hardly differ from place to place."""
    for share in (0.1, 10.0):
        photos = drawn(50, 2)
        photos[:, FEATURES // 2 :] *= share
        assert float(found.unusualness(photos).min()) > found.config.unfamiliar_above


def test_inside_and_outside_are_one_for_photos_that_nothing_was_fitted_to() -> None:
    """Though there are far fewer photos than features, and so few are alike in all directions."""
    found = Familiarity.fit(drawn(60, 0), drawn(300, 1))
    for distances in found._distances(drawn(300, 2)):
        assert float(distances.mean()) == pytest.approx(1.0, abs=0.1)


def test_a_feature_that_never_differs_does_no_harm() -> None:
    training, held_out = drawn(50, 0), drawn(50, 1)
    training[:, 7] = held_out[:, 7] = 0.0
    found = Familiarity.fit(training, held_out)
    assert found.config.components == 12
    assert bool(found.unusualness(held_out).isfinite().all())


def test_what_cannot_be_fitted_is_refused() -> None:
    with pytest.raises(UserError, match="all are alike"):
        Familiarity.fit(drawn(1, 0).expand(9, -1), drawn(5, 1))
    with pytest.raises(UserError, match="all are alike"):
        Familiarity.fit(torch.zeros(9, FEATURES), drawn(5, 1))
