"""Loading photos: every mode, orientation and format, and every way a file can be bad."""

from __future__ import annotations

import io
import logging
import os
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor
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


def red_and_blue() -> Image.Image:
    """Two pixels of a palette."""
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *BLUE])
    image.putdata([0, 1])
    return image


def pixels(image: Image.Image) -> numpy.ndarray:
    assert image.mode == "RGB"
    return numpy.asarray(image).astype(int)


def greys(image: Image.Image) -> list[int]:
    """The red of the first row, after seeing that red, green and blue are equal."""
    values = pixels(image)
    assert (values == values[:, :, :1]).all()
    return values[0, :, 0].tolist()


def row(values: list[float], dtype: str) -> Image.Image:
    return Image.fromarray(numpy.array([values], dtype=dtype))


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


def test_the_result_is_an_image_of_its_own() -> None:
    given_image = Image.new("RGB", (2, 2), RED)
    loaded = load_image(given_image)
    loaded.putpixel((0, 0), BLUE)
    assert given_image.getpixel((0, 0)) == RED


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


def test_a_side_that_no_photo_has_is_refused() -> None:
    long = Image.new("L", (1, 70_000))
    message = "long.png is too long: it is 1 x 70,000 pixels, the limit of a side is 65,535"
    assert refusal(encoded(long, "PNG"), name="long.png") == message


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


def test_an_image_that_is_loaded_again_is_not_turned_again_and_has_its_size_of_then() -> None:
    content = encoded(smooth_photo(800, 400), "JPEG", exif=turned(6))
    once = load_image(content, sufficient_side=100)
    again = load_image(once)
    assert original_size(again) == again.size == once.size == (100, 200)


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


def test_cmyk() -> None:
    inks = Image.new("CMYK", (8, 8), (0, 255, 255, 0))  # full magenta and yellow are red
    assert load_image(inks).getpixel((0, 0)) == RED
    # Pillow writes a CMYK JPEG as Adobe does, inverted, and turns it back as it reads.
    red, green, blue = load_image(encoded(inks, "JPEG")).getpixel((4, 4))
    assert (red > 245, green < 10, blue < 10) == (True, True, True)


def test_one_bit() -> None:
    image = Image.new("1", (3, 1))
    image.putpixel((1, 0), 1)
    for kind in ("PNG", "TIFF", "PPM"):
        assert greys(load_image(encoded(image, kind))) == [0, 255, 0]


def test_palette() -> None:
    image = red_and_blue()
    for source in (image, encoded(image, "PNG"), encoded(image, "GIF")):
        assert pixels(load_image(source))[0].tolist() == [list(RED), list(BLUE)]


@pytest.mark.parametrize(
    ("kind", "transparency", "expected"),
    [
        ("PNG", 1, [RED, WHITE]),
        ("GIF", 1, [RED, WHITE]),
        # 51/255 = 0.2: blue (0, 0, 255) on white gives (204, 204, 255).
        ("PNG", bytes([0, 51]), [WHITE, (204, 204, 255)]),
    ],
)
def test_palette_entries_are_composited_on_white(
    kind: str, transparency: int | bytes, expected: list[tuple[int, ...]]
) -> None:
    content = encoded(red_and_blue(), kind, transparency=transparency)
    assert pixels(load_image(content))[0].tolist() == [list(colour) for colour in expected]


@pytest.mark.parametrize("mode", ["LA", "La", "PA", "RGBA", "RGBa"])
def test_alpha_is_composited_on_white(mode: str) -> None:
    image = Image.new("L", (3, 1), 100)
    if mode == "PA":
        image = image.convert("P")
    image.putalpha(row([255, 0, 51], "uint8"))
    if mode in ("RGBA", "RGBa"):
        image = image.convert("RGBA")
    # 51/255 = 0.2: 0.2 * 100 + 0.8 * 255 = 224.
    assert greys(load_image(image.convert(mode))) == pytest.approx([100, 255, 224], abs=2)


@pytest.mark.parametrize(("mode", "colour"), [("L", 7), ("RGB", (7, 7, 7)), ("1", 0)])
def test_a_transparent_colour_is_white(mode: str, colour: Any) -> None:
    image = Image.new(mode, (2, 1), 255 if mode != "RGB" else (90, 90, 90))
    image.putpixel((0, 0), colour)
    content = encoded(image, "PNG", transparency=colour)
    assert greys(load_image(content)) == [255, 90 if mode == "RGB" else 255]


@pytest.mark.parametrize("kind", [None, "PNG", "TIFF", "PPM"])
def test_16_bit_greys_are_scaled_not_clipped(kind: str | None) -> None:
    # v * 255 / 65535 = v / 257: 257 -> 1, 25700 -> 100, 65535 -> 255.
    image = row([0, 257, 25700, 32896, 65535], "uint16")
    if kind == "PPM":
        image = row([0, 257, 25700, 32896, 65535], "int32")  # what Pillow writes 16-bit PGM from
    source = image if kind is None else encoded(image, kind)
    assert greys(load_image(source)) == [0, 1, 100, 128, 255]


def test_16_bit_greys_of_either_byte_order_keep_their_darkness() -> None:
    # A dark 16-bit photo stays dark: its range is known, so nothing is stretched.
    for mode, order in (("I;16", "<"), ("I;16B", ">")):
        data = struct.pack(f"{order}2H", 257, 2570)
        assert greys(load_image(Image.frombytes(mode, (2, 1), data))) == [1, 10]


def test_a_transparent_16_bit_grey_is_white() -> None:
    image = row([0, 25700, 65535], "uint16")
    image.info["transparency"] = 25700  # where Pillow puts the tRNS chunk of a PNG file
    assert greys(load_image(image)) == [0, 255, 255]


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("int32", [0, 100, 255], [0, 100, 255]),
        ("int32", [0, 25700, 65535], [0, 100, 255]),
        ("int32", [-5, 25700, 70_000], [0, 100, 255]),
        ("float32", [-1.0, 51.0, 300.0], [0, 51, 255]),
    ],
)
def test_greys_of_32_bits(dtype: str, values: list[float], expected: list[int]) -> None:
    image = row(values, dtype)
    for source in (image, encoded(image, "TIFF")):
        assert greys(load_image(source)) == expected


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


def test_missing_folder_empty_and_device(tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing.jpg", tmp_path / "empty.jpg"
    empty.write_bytes(b"")
    assert refusal(missing) == f"{missing} does not exist"
    assert refusal(tmp_path) == f"{tmp_path} is a folder, not an image"
    assert refusal(empty) == f"{empty} is empty"
    assert refusal(b"") == "the image is empty"
    assert refusal("") == "'' does not exist"
    address = "https://example.org/a.jpg"
    assert refusal(address) == f"{address} is an address; photos are not fetched, only read"
    assert refusal(os.devnull) == f"{os.devnull} is a pipe or a device, not a file"


@pytest.mark.parametrize("path", ["a\0b.jpg", "a" * 5000, "file.jpg/below.jpg"])
def test_paths_that_cannot_be(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.jpg").write_bytes(b"content")
    assert refusal(path).startswith(f"cannot read {path}: ")


@pytest.mark.parametrize("content", [b"hello", b"<svg></svg>", b"\0" * 1000, b"%PDF-1.7"])
def test_not_an_image(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(content)
    assert refusal(path).startswith(f"{path} is not an image that can be read (JPEG, PNG, ")


@pytest.mark.parametrize("kind", ["EPS", "TGA", "ICO"])
def test_formats_that_are_not_read(kind: str) -> None:
    # Pillow would start another program for an EPS file.
    assert refusal(encoded(smooth_photo(), kind)).startswith(
        "the image is not an image that can be read"
    )


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


def test_warnings_are_as_before_after_many_threads() -> None:
    contents = [encoded(smooth_photo(200, 200), "PNG"), b"not an image"]

    def load(number: int) -> str:
        try:
            return load_image(contents[number % 2]).mode
        except UserError:
            return "refused"

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(load, range(120))) == ["RGB", "refused"] * 60
    # The fixture compares the filters.


def test_pillows_own_limit_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)  # Of 200 pixels Pillow would refuse it.
    assert load_image(encoded(smooth_photo(), "PNG")).size == (24, 16)


@pytest.mark.parametrize("size", [(0, 0), (0, 5), (5, 0)])
def test_no_pixels(size: tuple[int, int]) -> None:
    assert refusal(Image.new("RGB", size)) == (
        f"the image has no pixels: it is {size[0]} x {size[1]}"
    )


def test_files_and_values_that_are_not_readable(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    path.write_bytes(encoded(smooth_photo(), "PNG"))
    with path.open("rb") as file:
        pass
    assert refusal(file).startswith(f"cannot read {path}: ")
    path.write_text("words")
    with path.open() as text:
        assert refusal(text).startswith(f"cannot read {path}: a bytes-like object is required")
    assert refusal(None).startswith("the image is of the type NoneType, not a path, bytes, ")


def test_the_name_in_an_error() -> None:
    assert refusal(b"words", name="upload 3").startswith("upload 3 is not an image")
    named = io.BytesIO(b"words")
    named.name = "named.jpg"  # type: ignore[attr-defined]
    assert refusal(named).startswith("named.jpg is not an image")
    assert refusal(io.BytesIO(b"words")).startswith("the image is not an image")

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
