"""What decoding may take: long photos, large ones, many scans; bands change no pixel."""

import io
from typing import Any

import numpy as np
import pytest
from photo_samples import encoded, smooth_photo, turned
from PIL import Image, ImageOps

from captioner.errors import UserError
from captioner.vision import decoding_process, pixels
from captioner.vision.images import load_image, original_size


def bomb(mode: str, width: int, height: int, kind: str = "PNG", **options: Any) -> bytes:
    return encoded(Image.new(mode, (width, height)), kind, **options)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bomb("L", 30_001, 400), "is too long: it is 30001 x 400, and the limit is 30,000 pixels"),
        (bomb("1", 1, 101), "is too long: it is 1 x 101"),
        (bomb("I;16", 9_000, 9_000), "too large: its 9000 x 9000 take 648 MB to decode, and the"),
    ],
)
def test_what_takes_too_much_is_refused_before_decoding(content: bytes, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        load_image(content, name="photo", sufficient_side=512)


def test_a_long_jpeg_is_scaled_while_decoding_and_a_panorama_less() -> None:
    long = load_image(bomb("L", 40_000, 4_000, "JPEG"), sufficient_side=512)
    assert (long.size, original_size(long)) == ((5_000, 500), (40_000, 4_000))
    flat = load_image(bomb("L", 20_000, 300), sufficient_side=100)
    assert flat.size == (1_539, 24)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["RGB", "LA"])
def test_bands_change_no_pixel(
    mode: str, orientation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = encoded(smooth_photo(401, 303).convert(mode), "PNG", exif=turned(orientation))
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    monkeypatch.setattr(pixels, "_BAND", 5_000)
    loaded = load_image(content, sufficient_side=100)
    assert np.array_equal(loaded, expected.convert("RGB").reduce(3))


def test_scans_are_counted_unless_the_first_has_all_channels() -> None:
    whole = bomb("RGB", 2_000, 2_000, "JPEG")
    place = whole.index(b"\xff\xda")
    scan = b"\xff\xda\0\x08\1\1\0\0\x3f\0"  # Of the first channel.
    disguise = (
        b"\xff\xfe\0\x08" + whole[place + 2 : place + 8]
    )  # A comment that ends as a scan begins.
    for content, heavy in (
        (whole + scan * 200, False),
        (whole[:place] + scan * 200, True),
        (whole[:place] + disguise + scan * 200, True),
    ):
        file = io.BytesIO(content)
        image = Image.open(file)
        assert pixels.is_heavy(image, file, 0, image.size) is heavy


def test_many_scans_are_decoded_elsewhere_and_end_at_the_limit_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each repeated scan costs as much as the first, and holds nearly nothing."""
    content = bomb("L", 2_000, 2_000, "JPEG", progressive=True)
    first = content.index(b"\xff\xda")
    scan = content[first : content.index(b"\xff", first + 2)]
    pool = decoding_process.DecodingPool(1, seconds=0.5)
    monkeypatch.setattr(decoding_process, "shared_pool", lambda process_id: pool)
    with pytest.raises(UserError, match=r"^slow\.jpg cannot be decoded: .* 0\.5 s, the limit \(--"):
        load_image(content[:first] + scan * 20_000 + content[first:], name="slow.jpg")
    pool.close()
