"""Generated pictures that are no photos: the same every time, of many looks, well divided."""

from __future__ import annotations

import numpy as np
import pytest

from captioner.data.outliers import OUTLIER_KINDS, OutlierKind, draw_outliers

KINDS = pytest.mark.parametrize("kind", OUTLIER_KINDS, ids=lambda kind: kind.name)


@KINDS
def test_a_seed_names_its_pictures(kind: OutlierKind) -> None:
    first, again = draw_outliers(kind, 3, 5), draw_outliers(kind, 3, 5)
    assert [picture.tobytes() for picture in first] == [picture.tobytes() for picture in again]
    assert draw_outliers(kind, 2, 5) == first[:2]
    assert draw_outliers(kind, 3, 6) != first


@KINDS
def test_pictures_are_rgb_and_differ(kind: OutlierKind) -> None:
    pictures = draw_outliers(kind, 6, 0)
    assert {picture.mode for picture in pictures} == {"RGB"}
    assert min(min(picture.size) for picture in pictures) >= 224
    assert len({picture.tobytes() for picture in pictures}) > 3  # White may come twice.


def test_every_family_has_kinds_to_fit_on_and_others_to_measure_on() -> None:
    names = [kind.name for kind in OUTLIER_KINDS]
    assert len(set(names)) == len(names)
    for family in {kind.family for kind in OUTLIER_KINDS}:
        held_out = {kind.held_out for kind in OUTLIER_KINDS if kind.family == family}
        assert held_out == {False, True}, family


def test_screens_and_drawings_have_edges_and_plain_colours_have_none() -> None:
    for kind in OUTLIER_KINDS:
        for picture in draw_outliers(kind, 3, 1):
            grey = np.asarray(picture.convert("L"), np.float64)
            jumps = np.abs(np.diff(grey, axis=1)).max()
            if kind.family in ("screenshots", "drawings"):
                assert jumps > 20, kind.name
            elif kind.family == "plain":
                assert jumps <= 5, kind.name
