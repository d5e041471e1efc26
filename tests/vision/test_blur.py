from __future__ import annotations

import pytest
import torch

from captioner.vision.blur import BLUR_SHARE, blur_places, blurred


def photos(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def test_a_blur_is_a_gaussian_mean_with_the_edges_mirrored() -> None:
    photo = photos(3, 6, 12)
    found = blurred(photo)
    offsets = torch.arange(-5, 6)
    kernel = torch.exp(-0.5 * (offsets / (6 * BLUR_SHARE)) ** 2)
    kernel /= kernel.sum()
    for row, column in ((0, 0), (4, 6), (5, 3), (2, 11)):
        expected = torch.zeros(3)
        for down, weight in zip(offsets.tolist(), kernel, strict=True):
            for across, other in zip(offsets.tolist(), kernel, strict=True):
                y, x = row + down, column + across
                y = -1 - y if y < 0 else 11 - y if y > 5 else y
                x = -1 - x if x < 0 else 23 - x if x > 11 else x
                expected += weight * other * photo[:, y, x]
        torch.testing.assert_close(found[:, row, column], expected)


def test_the_mean_colour_stays_and_content_goes() -> None:
    photo = photos(2, 3, 64, 64)
    found = blurred(photo)
    assert found.shape == photo.shape
    torch.testing.assert_close(
        found.mean(dim=(-2, -1)), photo.mean(dim=(-2, -1)), atol=2e-3, rtol=0
    )
    assert found.std(dim=(-2, -1)).max() < 0.05 * photo.std(dim=(-2, -1)).min()
    torch.testing.assert_close(blurred(torch.ones(3, 1, 7)), torch.ones(3, 1, 7))


def test_no_place_leaves_the_photo_and_all_leave_nothing_of_it() -> None:
    photo, other = photos(3, 32, 64), torch.zeros(3, 32, 64)
    ends = torch.stack([torch.zeros(2, 4, dtype=torch.bool), torch.ones(2, 4, dtype=torch.bool)])
    untouched, gone = blur_places(photo, other, ends)
    assert torch.equal(untouched, photo)
    torch.testing.assert_close(gone, other, atol=1e-6, rtol=0)


def test_a_place_is_replaced_where_it_lies_and_softly() -> None:
    places = torch.zeros(2, 2, 4, dtype=torch.bool)
    places[0, 0, 1] = places[1, 1, 3] = True
    white, black = torch.ones(3, 64, 128), torch.zeros(3, 64, 128)  # a place is 32x32
    first, second = blur_places(white, black, places)
    assert first[:, 16, 48].max() < 0.1
    assert second[:, 48, 112].max() < 0.1
    assert first[:, 16, 90].min() > 0.999
    assert second[:, 16, 48].min() > 0.999
    assert first[0, 16, 63:65].mean() == pytest.approx(0.5, abs=0.02)  # half way over the edge
    assert (first[0, 16].diff().abs() < 0.06).all()
    # A place takes out its share of the photo, no more and no less.
    assert (1 - first).mean() == pytest.approx(1 / 8, abs=1e-3)
    # The complement of a set of places takes out the rest.
    rest = blur_places(white, black, ~places)
    torch.testing.assert_close(rest[0] + first, white, atol=1e-5, rtol=0)
