"""Loading photos: every mode, orientation and format, and every way a file can be bad."""

from __future__ import annotations

import io
import logging
import os
import struct
import warnings
from pathlib import Path
from threading import Thread
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from photo_samples import encoded, smooth_photo, turned
from PIL import Image, ImageFile, ImageOps, TiffImagePlugin

from captioner.errors import UserError
from captioner.vision.images import (
    IMAGE_SUFFIXES,
    MAXIMUM_SCANS,
    load_image,
    original_size,
    shrink,
)

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)


@pytest.fixture(autouse=True)
def _pillow_stays_quiet_and_unchanged():
    """No test may print a warning or leave a setting of Pillow or of the process changed."""
    before = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filters = list(warnings.filters)
        yield
        assert list(warnings.filters) == filters
    after = (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)
    assert after == before


def pixels(image: Image.Image) -> numpy.ndarray:
    assert image.mode == "RGB"
    return numpy.asarray(image).astype(int)


# What a photo may be given as.


def test_a_path_bytes_a_file_and_an_image_are_the_same_photo(tmp_path: Path) -> None:
    content = encoded(smooth_photo(), "PNG")
    path = tmp_path / "photo.png"
    path.write_bytes(content)
    with path.open("rb") as file:
        sources = [
            path,
            str(path),
            content,
            bytearray(content),
            io.BytesIO(content),
            file,
            smooth_photo(),
        ]
        for source in [*sources, file]:  # The second time it is wound back.
            assert (pixels(load_image(source)) == pixels(smooth_photo())).all(), type(source)


def test_a_stream_that_cannot_be_wound_back_is_read_as_it_is() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        with os.fdopen(writing, "wb") as other_end:
            other_end.write(encoded(smooth_photo(), "PNG"))
        assert load_image(stream).size == (24, 16)


def test_the_file_is_closed_and_can_be_removed(tmp_path: Path) -> None:
    # An animation is the case in which Pillow keeps its file open.
    path = tmp_path / "photo.gif"
    Image.new("P", (4, 4)).save(path, save_all=True, append_images=[Image.new("P", (4, 4), 1)])
    load_image(path)  # a file left open would raise a ResourceWarning here, an error by the fixture
    path.unlink()


# Orientation.


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(kind: str, orientation: int) -> None:
    content = encoded(smooth_photo(48, 32), kind, exif=turned(orientation))
    with Image.open(io.BytesIO(content)) as image:
        expected = ImageOps.exif_transpose(image)
    assert numpy.array_equal(pixels(load_image(content)), pixels(expected))


# Decoding to fewer pixels.


def difference(one: Image.Image, other: Image.Image) -> float:
    """Mean difference of the smooth channels of two photos, scaled to one size."""
    small = [pixels(image.resize((32, 32)))[..., :2] for image in (one, other)]
    return float(abs(small[0] - small[1]).mean())


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((801, 405), (801, 405)),
        ((801, 406), (401, 203)),
        ((406, 801), (203, 401)),
        ((1700, 1624), (213, 203)),
        ((9744, 1624), (1218, 203)),
    ],
)
def test_a_jpeg_is_decoded_to_at_least_the_pixels_that_suffice(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    content = encoded(smooth_photo(*size), "JPEG")
    loaded = load_image(content, sufficient_side=203)
    assert loaded.size == expected
    assert original_size(loaded) == size
    whole = load_image(content)
    assert whole.size == original_size(whole) == size
    assert difference(loaded, whole) < 1


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_original_size_is_that_of_the_upright_photo(kind: str, orientation: int) -> None:
    # Both sides are 101 or 100 at a quarter.
    content = encoded(smooth_photo(401, 400), kind, exif=turned(orientation))
    whole = load_image(content)
    loaded = load_image(content, sufficient_side=100)
    assert original_size(loaded) == whole.size
    assert loaded.size == tuple(-(-side // 4) for side in whole.size)
    assert difference(loaded, whole) < 1


def test_an_image_that_is_given_is_turned_but_not_reduced() -> None:
    with Image.open(io.BytesIO(encoded(smooth_photo(800, 600), "JPEG", exif=turned(8)))) as given:
        assert load_image(given, sufficient_side=100).size == (600, 800)
        assert given.size == (800, 600)


@pytest.mark.parametrize("mode", ["RGBA", "P", "L", "I;16"])
def test_every_kind_of_file_is_reduced(mode: str) -> None:
    image = smooth_photo(800, 600).convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        image = Image.fromarray(numpy.asarray(image).astype(numpy.uint16) * 257)
    content = encoded(image, "PNG")
    loaded = load_image(content, sufficient_side=200)
    assert (loaded.size, original_size(loaded)) == ((267, 200), (800, 600))
    assert difference(loaded, load_image(content)) < 1


def test_a_photo_is_shrunk_by_its_longer_side() -> None:
    small = shrink(smooth_photo(2501, 50), 250)
    assert (small.size, original_size(small)) == ((251, 5), (2501, 50))
    assert original_size(shrink(small, 100)) == (2501, 50)
    assert shrink(small, 126) is small
    assert shrink(small, 0).size == (1, 1)


def test_scans_that_only_take_time_are_refused() -> None:
    progressive = encoded(smooth_photo(64, 64), "JPEG", progressive=True)
    last = progressive[progressive.rindex(b"\xff\xda") : -2]
    for scans in (5_000, MAXIMUM_SCANS - progressive.count(b"\xff\xda") + 1):
        bomb = progressive[:-2] + last * scans + progressive[-2:]
        message = f"photo.jpg has more than {MAXIMUM_SCANS} scans, the limit"
        assert refusal(bomb, name="photo.jpg") == message


def test_only_scans_of_the_photo_itself_count() -> None:
    """Telephones append films, and put pictures into segments."""
    noise = b"\xff\xda" * (MAXIMUM_SCANS + 1)
    content = encoded(smooth_photo(64, 64), "JPEG", progressive=True, comment=noise)
    assert load_image(content + noise).size == (64, 64)


def test_limits_and_damage_are_those_of_the_whole_photo() -> None:
    content = encoded(smooth_photo(800, 800), "JPEG")
    options = {"sufficient_side": 100, "name": "photo.jpg"}
    assert "800 x 800" in refusal(content, maximum_pixels=800 * 800 - 1, **options)
    cut = refusal(content[: len(content) * 3 // 4], **options)
    assert cut == "photo.jpg is cut off: the file ends before the image does"


@pytest.mark.parametrize(
    "exif",
    [
        *map(turned, (0, 9, 77)),
        b"Exif\0\0",
        b"Exif\0\0nothing of the kind",
        b"Exif\0\0II*\0\xff",
    ],
)
def test_exif_data_without_an_orientation_do_not_cost_the_photo(exif: Image.Exif | bytes) -> None:
    for kind in ("JPEG", "PNG"):
        assert load_image(encoded(smooth_photo(), kind, exif=exif)).size == (24, 16)


# Modes.


def row(values: list[Any], dtype: str = "uint8") -> Image.Image:
    return Image.fromarray(numpy.array([values], dtype=dtype))


def with_mode(mode: str, values: list[Any], **info: Any) -> Image.Image:
    image = Image.new(mode, (len(values), 1))
    image.putdata(values)
    image.info.update(info)
    return image


def with_alpha(mode: str) -> Image.Image:
    """Greys of 100, one opaque, one transparent, one of a fifth."""
    image = Image.new("P" if mode == "PA" else "L", (3, 1), 100)
    if mode == "PA":
        image.putpalette([level for level in range(256) for _ in range(3)])
    image.putalpha(row([255, 0, 51]))
    return image.convert("RGBA").convert(mode) if "RGB" in mode else image.convert(mode)


def palette() -> Image.Image:
    image = with_mode("P", [0, 1])
    image.putpalette([*RED, *BLUE])
    return image


# 51 / 255 is a fifth: 0.2 * 100 + 0.8 * 255 = 224, and a fifth of blue on white (204, 204, 255).
# Greys of 16 bits are scaled by 255 / 65535 = 1 / 257.
MODES: list[tuple[Image.Image, str | None, dict[str, Any], list[Any]]] = [
    (Image.new("CMYK", (1, 1), (0, 255, 255, 0)), None, {}, [RED]),
    (with_mode("1", [0, 255, 0]), "PNG", {}, [0, 255, 0]),
    (with_mode("1", [0, 255, 0]), "PPM", {}, [0, 255, 0]),
    (palette(), None, {}, [RED, BLUE]),
    (palette(), "GIF", {}, [RED, BLUE]),
    (palette(), "PNG", {"transparency": 1}, [RED, WHITE]),
    (palette(), "GIF", {"transparency": 1}, [RED, WHITE]),
    (palette(), "PNG", {"transparency": bytes([0, 51])}, [WHITE, (204, 204, 255)]),
    *((with_alpha(mode), None, {}, [100, 255, 224]) for mode in ("LA", "La", "PA")),
    *((with_alpha(mode), None, {}, [100, 255, 224]) for mode in ("RGBA", "RGBa")),
    (with_mode("L", [7, 255]), "PNG", {"transparency": 7}, [255, 255]),
    (with_mode("RGB", [(7, 7, 7), RED]), "PNG", {"transparency": (7, 7, 7)}, [WHITE, RED]),
    (row([0, 257, 25700, 65535], "uint16"), None, {}, [0, 1, 100, 255]),
    (row([0, 257, 25700, 65535], "uint16"), "PNG", {}, [0, 1, 100, 255]),
    (row([0, 257, 25700, 65535], "uint16"), "TIFF", {}, [0, 1, 100, 255]),
    (row([0, 257, 25700, 65535], "int32"), "PPM", {}, [0, 1, 100, 255]),
    (Image.frombytes("I;16B", (2, 1), b"\1\1\x0a\x0a"), None, {}, [1, 10]),
    (with_mode("I;16", [0, 25700], transparency=25700), None, {}, [0, 255]),
    (row([0, 100, 255], "int32"), "TIFF", {}, [0, 100, 255]),
    (row([-5, 25700, 70_000], "int32"), "TIFF", {}, [0, 100, 255]),
    (row([-1.0, 51.0, 300.0], "float32"), "TIFF", {}, [0, 51, 255]),
]


@pytest.mark.parametrize(("image", "kind", "options", "expected"), MODES)
def test_every_mode_becomes_rgb_on_white(
    image: Image.Image, kind: str | None, options: dict[str, Any], expected: list[Any]
) -> None:
    found = pixels(load_image(image if kind is None else encoded(image, kind, **options)))[0]
    colours = [each if isinstance(each, tuple) else (each, each, each) for each in expected]
    assert found == pytest.approx(numpy.array(colours), abs=2 if "a" in image.mode.lower() else 0)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "MPO"])
def test_the_first_frame_of_an_animation(kind: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in (RED, BLUE)]
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    with Image.open(io.BytesIO(content)) as image:
        assert getattr(image, "n_frames", 1) == 2
    assert pixels(load_image(content))[8, 8] == pytest.approx(RED, abs=8)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000"])
def test_formats(kind: str) -> None:
    loaded = load_image(encoded(smooth_photo(), kind))
    assert loaded.size == (24, 16)
    assert abs(pixels(loaded) - pixels(smooth_photo())).mean() < 16


def test_suffixes_are_those_of_formats_that_are_read() -> None:
    Image.init()
    known = Image.registered_extensions()
    read = {"JPEG", "PNG", "GIF", "WEBP", "AVIF", "BMP", "TIFF", "JPEG2000", "PPM", "HEIF"}
    assert {known[suffix] for suffix in IMAGE_SUFFIXES if suffix in known} <= read


# What is refused.


def refusal(source: Any, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        load_image(source, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert caught.value.__cause__ is None
    return message


def closed_file() -> Any:
    file = io.BytesIO(b"content")
    file.close()
    return file


def named_file() -> Any:
    file = io.BytesIO(b"words")
    file.name = "named.jpg"  # type: ignore[attr-defined]
    return file


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.jpg", "missing.jpg does not exist"),
        (".", ". is a folder, not an image"),
        (b"", "the image is empty"),
        ("", "'' does not exist"),
        ("https://x.org/a.jpg", "https://x.org/a.jpg is an address; photos are not fetched, only"),
        (os.devnull, f"{os.devnull} is a pipe or a device, not a file"),
        ("a\0b.jpg", "cannot read a\0b.jpg: "),
        ("a" * 5000, f"cannot read {'a' * 5000}: "),
        (closed_file(), "cannot read the image: "),
        (io.StringIO("words"), "cannot read the image: a bytes-like object is required"),
        (None, "the image is of the type NoneType, not a path, bytes, "),
        (b"hello", "the image is not an image that can be read (JPEG, PNG, "),
        (b"<svg></svg>", "the image is not an image that can be read"),
        (b"%PDF-1.7", "the image is not an image that can be read"),
        # Pillow would start another program for an EPS file.
        (encoded(smooth_photo(), "EPS"), "the image is not an image that can be read"),
        (encoded(smooth_photo(), "TGA"), "the image is not an image that can be read"),
        (named_file(), "named.jpg is not an image"),
        (Image.new("RGB", (0, 5)), "the image has no pixels: it is 0 x 5"),
        (
            encoded(Image.new("L", (1, 70_000)), "PNG"),
            "the image is too long: it is 1 x 70,000 pixels, the limit of a side is 65,535",
        ),
    ],
)
def test_what_is_no_photo_is_refused_by_name(source: Any, message: str) -> None:
    assert refusal(source).startswith(message)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM"])
def test_cut_off_in_the_middle(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    content = encoded(smooth_photo(200, 200), kind)
    path.write_bytes(content[: len(content) * 3 // 4])
    assert refusal(path) == f"{path} is cut off: the file ends before the image does"


def test_a_png_file_that_ends_in_zeros_is_not_black(tmp_path: Path) -> None:
    """As an unfinished download leaves it whose room was taken at the start."""
    path = tmp_path / "photo.png"
    content = encoded(smooth_photo(200, 200), "PNG")
    for kept in range(100, len(content) - 12, len(content) // 50):
        path.write_bytes(content[:kept].ljust(len(content), b"\0"))
        assert refusal(path).startswith(f"{path} is damaged or cut off and cannot be decoded (")


def test_messages_of_other_threads_are_printed_while_a_tiff_is_decoded(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.BytesIO()
    smooth_photo(200, 200).save(file, "TIFF", compression="tiff_adobe_deflate")
    content = bytearray(file.getvalue())
    content[200:220] = b"\xff" * 20
    decode = ImageFile.ImageFile.load

    def load_and_print(image: ImageFile.ImageFile) -> Any:
        thread = Thread(target=os.write, args=(2, b"of another thread\n"))
        thread.start()
        thread.join()
        return decode(image)

    monkeypatch.setattr(TiffImagePlugin.TiffImageFile, "load", load_and_print)
    assert "damaged or cut off" in refusal(bytes(content))
    assert "of another thread" in capfd.readouterr().err


def test_too_many_pixels_are_refused_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(smooth_photo(), "PNG")
    assert load_image(content, maximum_pixels=24 * 16).size == (24, 16)
    message = "the image is too large: 24 x 16 is 384 pixels, the limit is 383"
    assert refusal(smooth_photo(), maximum_pixels=383) == message
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda file: pytest.fail("decoded"))
    assert refusal(content, maximum_pixels=383) == message


def test_what_pillow_logs_is_not_printed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = encoded(Image.new("RGB", (4, 4)), "TIFF")
    # The entry of tag 277, samples per pixel (type 3, short), made to say 99: an error is logged.
    entry = struct.pack("<HHIH", 277, 3, 1, 3)
    assert content.count(entry) == 1
    monkeypatch.setattr(logging.root, "handlers", [])  # As where none is set up.
    message = refusal(content.replace(entry, struct.pack("<HHIH", 277, 3, 1, 99)))
    assert message.endswith("or is damaged or cut off")
    assert capfd.readouterr() == ("", "")

    # The fixture compares the filters.


def test_pillows_own_limit_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Of 200 pixels Pillow would refuse it.
    assert load_image(encoded(smooth_photo(), "PNG")).size == (24, 16)

    # The fixture compares the filters.


# Any bytes at all.


EXAMPLES = [
    encoded(smooth_photo(), kind)
    for kind in ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "JPEG2000")
]


@given(st.sampled_from([*EXAMPLES, b"\0\0\0\x1cftypavif"]), st.data())
def test_damaged_files_load_or_are_refused(content: bytes, data: st.DataObject) -> None:
    """Cut at any place, then continued by any bytes, with some others changed."""
    kept = data.draw(st.integers(4, len(content)) | st.just(len(content)))
    changed = bytearray(content[:kept] + data.draw(st.binary(max_size=300)))
    # Half of the changes fall on the header, where they do the most.
    places = st.one_of(st.integers(0, min(64, len(changed)) - 1), st.integers(0, len(changed) - 1))
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=8)):
        changed[place] = value
    try:
        loaded = load_image(bytes(changed), maximum_pixels=4_000_000, name="photo")
    except UserError as error:
        outcome = str(error)
    else:
        outcome = f"photo is {loaded.mode}"
        assert min(loaded.size) > 0
    assert outcome.startswith("photo ")
    assert "\n" not in outcome


@given(
    st.sampled_from(["1", "L", "P", "RGB", "RGBA", "CMYK", "YCbCr", "HSV", "LA", "I", "F"]),
    st.integers(1, 4),
    st.integers(1, 4),
    st.data(),
)
def test_any_pixels_of_any_mode_load(mode: str, width: int, height: int, data: Any) -> None:
    length = len(Image.new(mode, (width, height)).tobytes())
    content = data.draw(st.binary(min_size=length, max_size=length))
    loaded = load_image(Image.frombytes(mode, (width, height), content))
    assert (loaded.mode, loaded.size) == ("RGB", (width, height))
