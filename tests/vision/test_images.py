"""Loading photos of every mode, orientation and format; finding them; refusals."""

import gzip
import io
import os
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from photo_samples import chunk, encoded, smooth_photo, turned
from PIL import Image, ImageFile, ImageOps
from refusals import refuses

from captioner.errors import UserError
from captioner.vision.images import load_image, local_path, original_size, photo_files

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
NAN, INFINITE = float("nan"), float("inf")
KINDS = ["JPEG", "PNG", "GIF", "WEBP", "BMP", "DIB", "PCX", "TIFF", "PPM", "JPEG2000"]


def pixels(image: Image.Image) -> np.ndarray:
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


def difference(one: Image.Image, other: Image.Image) -> float:
    """Mean difference of the smooth channels of two photos, scaled to one size."""
    small = [pixels(image.resize((32, 32)))[..., :2] for image in (one, other)]
    return float(abs(small[0] - small[1]).mean())


def test_a_path_bytes_a_file_and_an_image_are_the_same_photo(tmp_path: Path) -> None:
    content, array = encoded(smooth_photo(), "PNG"), np.asarray(smooth_photo())
    path = tmp_path / "photo.png"
    path.write_bytes(content)
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as other_end:
        other_end.write(content)
    with path.open("rb") as file, os.fdopen(reading, "rb") as pipe:
        sources: list[Any] = [path, str(path), content, bytearray(content), io.BytesIO(content)]
        sources += [file, file, pipe, smooth_photo(), array]  # The file is wound back.
        for source in (*sources, torch.from_numpy(array / 255).permute(2, 0, 1)):
            assert (pixels(load_image(source)) == array).all(), type(source)
    grey = np.asarray(smooth_photo().convert("L"))
    for source in (grey, torch.from_numpy(grey / 255)):
        assert (pixels(load_image(source)) == grey[..., None]).all(), type(source)


@pytest.mark.parametrize("kind", KINDS)
def test_formats(kind: str) -> None:
    loaded = load_image(encoded(smooth_photo(), kind))
    assert loaded.size == (24, 16)
    assert abs(pixels(loaded) - pixels(smooth_photo())).mean() < 16


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(kind, orientation, monkeypatch) -> None:
    monkeypatch.setattr("captioner.vision.pixels._BAND", 5_000)  # Several bands.
    # Both sides are 101 or 100 at a quarter.
    content = encoded(smooth_photo(401, 400), kind, exif=turned(orientation))
    with Image.open(io.BytesIO(content)) as image:
        expected, reduced = map(ImageOps.exif_transpose, (image, image.reduce(4)))
    whole, loaded = load_image(content), load_image(content, sufficient_side=100)
    assert np.array_equal(pixels(whole), pixels(expected))
    assert original_size(loaded) == whole.size
    if kind != "JPEG":  # It is decoded to fewer pixels.
        assert np.array_equal(loaded, reduced)
    assert loaded.size == tuple(-(-side // 4) for side in whole.size)
    assert difference(loaded, whole) < 1


@pytest.mark.parametrize("exif", [turned(9), b"Exif\0\0", b"Exif\0\0II*\0\xff"])
def test_exif_data_without_an_orientation_do_not_cost_the_photo(exif: Image.Exif | bytes) -> None:
    assert load_image(encoded(smooth_photo(), "JPEG", exif=exif)).size == (24, 16)


def heic(image: Image.Image, orientation: int = 1, **options: Any) -> bytes:
    """A HEIC file, turned by its own property and by EXIF, as telephones write it."""
    pytest.importorskip("pillow_heif", reason="pillow-heif is not installed").register_heif_opener()
    exif = turned(orientation).tobytes()
    return encoded(image, "HEIF", quality=90, exif=exif, **options)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_heic_photos_are_turned_once(orientation: int) -> None:
    photo = smooth_photo(640, 480)
    jpeg = encoded(photo, "JPEG", quality=95, exif=turned(orientation))
    content = heic(photo, orientation, tile_size=128)
    found, small = load_image(content), load_image(content, sufficient_side=100)
    assert found.size == original_size(small) == load_image(jpeg).size
    assert sorted(small.size) == [120, 160]
    assert difference(found, load_image(jpeg)) < 2 > difference(small, found)


def test_heic_photos_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    content = heic(smooth_photo(160, 96))
    assert refusal(content[: len(content) * 9 // 10]).startswith("the image is not an")
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    refuses(r'^b\.HEIC is HEIC, .*"captioner\[heif\]"$', load_image, content, name="b.HEIC")


def row(values: list[Any], dtype: str = "uint8") -> Image.Image:
    return Image.fromarray(np.array([values], dtype=dtype))


def with_alpha(mode: str) -> Image.Image:
    """Greys of 100, one opaque, one transparent, one of a fifth."""
    image = Image.new("P" if mode == "PA" else "L", (3, 1), 100)
    if mode == "PA":
        image.putpalette([level for level in range(256) for _ in range(3)])
    image.putalpha(row([255, 0, 51]))
    return image.convert("RGBA").convert(mode) if "RGB" in mode else image.convert(mode)


def palette() -> Image.Image:
    image = Image.new("P", (2, 1))
    image.putpixel((1, 0), 1)
    image.putpalette([*RED, *BLUE])
    return image


def retagged(image: Image.Image, tag: int, value: int) -> bytes:
    """A TIFF file with another value of a tag."""
    content = bytearray(encoded(image, "TIFF"))
    content[content.index(struct.pack("<HHI", tag, 3, 1)) + 8] = value
    return bytes(content)


def png(kind: int, bits: int, row: bytes, width: int = 1) -> bytes:
    """A PNG of one row. bits: of a channel. kind: 0 is grey, 2 RGB, and 4 more with alpha."""
    head = struct.pack(">IIBBBBB", width, 1, bits, kind, 0, 0, 0)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" + row))
    chunks += chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


# 51 / 255 is a fifth: 0.2 * 100 + 0.8 * 255 = 224, and a fifth of blue on white (204, 204, 255).
MODES: list[tuple[Any, str | None, dict[str, Any], list[Any]]] = [
    (row([0, 255, 0]).convert("1"), "PNG", {}, [0, 255, 0]),
    (palette(), "GIF", {"transparency": 1}, [RED, WHITE]),
    (palette(), "PNG", {"transparency": bytes([0, 51])}, [WHITE, (204, 204, 255)]),
    *((with_alpha(mode), None, {}, [100, 255, 224]) for mode in ("LA", "PA", "RGBA", "RGBa")),
    (row([7, 255]), "PNG", {"transparency": 7}, [255, 255]),
    (row([0, 1606, 4095], "uint16"), "TIFF", {}, [0, 100, 255]),  # 12 bits
    (Image.new("CMYK", (1, 1), (0, 255, 255, 0)), "TIFF", {}, [RED]),
    (png(0, 4, b"\x06\xf0", width=3), None, {}, [0, 102, 255]),  # 4 bits
    (png(0, 16, struct.pack(">H", 25700)), None, {}, [100]),
    (png(2, 16, struct.pack(">3H", 65535, 0, 25700)), None, {}, [(255, 0, 100)]),
    (png(4, 16, struct.pack(">2H", 25700, 13107)), None, {}, [224]),
    (png(6, 16, struct.pack(">4H", 0, 0, 65535, 13107)), None, {}, [(204, 204, 255)]),
    (b"P5 2 1 1023\n" + struct.pack(">2H", 401, 1023), None, {}, [100, 255]),
    (b"P6 1 1 65535\n" + struct.pack(">3H", 65535, 0, 25700), None, {}, [(255, 0, 100)]),
    (row([0, 0.2, 0.8], "float32"), "TIFF", {}, [0, 51, 204]),
    (row([0, 0.5, 2.5], "float32"), "TIFF", {}, [0, 51, 255]),  # Brighter than white.
    (row([NAN, -INFINITE, 0.2, 1, INFINITE], "float32"), "TIFF", {}, [0, 0, 51, 255, 255]),
    (row([0, 0], "float32"), "TIFF", {}, [0, 0]),
    (row([-1, 0, 1.5], "float32"), "TIFF", {}, [0, 102, 255]),  # Black is the darkest.
    # White is 0 (tag 262).
    (retagged(row([0, 1606, 4095], "uint16"), 262, 0), None, {}, [255, 155, 0]),
    (retagged(row([0, 0.2, 1], "float32"), 262, 0), None, {}, [255, 204, 0]),
]


@pytest.mark.parametrize(("image", "kind", "options", "expected"), MODES)
def test_every_mode_becomes_rgb_on_white(image, kind, options, expected) -> None:
    found = pixels(load_image(image if kind is None else encoded(image, kind, **options)))[0]
    colours = [each if isinstance(each, tuple) else (each, each, each) for each in expected]
    has_alpha = "a" in getattr(image, "mode", "").lower()
    assert found == pytest.approx(np.array(colours), abs=2 if has_alpha else 0)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF", "MPO"])
def test_the_first_frame_of_an_animation(kind: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in (RED, BLUE)]
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    assert pixels(load_image(content))[8, 8] == pytest.approx(RED, abs=8)


def refusal(source: Any, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        load_image(source, **options)
    message = str(caught.value)
    assert ("\n" in message, caught.value.__cause__) == (False, None)
    return message


PNG = encoded(smooth_photo(200, 200), "PNG")


def jpeg_2000(mode: str, bits: int) -> bytes:
    """A file whose header gives the first channel other bits (ISO/IEC 15444-1, A.5.1)."""
    content = bytearray(encoded(smooth_photo().convert(mode), "JPEG2000"))
    content[content.index(b"\xff\x4f\xff\x51") + 42] = bits - 1
    return bytes(content)


DEPTH = "the image is JPEG 2000 of other than 8 bits a colour, which is not read: save it as PNG or"
SIGNED = "the image is TIFF of signed or 32-bit integers, which is not read: save it as PNG or JPEG"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.jpg", "missing.jpg does not exist"),
        ("https://x.org/a.jpg", "https://x.org/a.jpg is an address; photos are not fetched, only"),
        (io.StringIO("words"), "cannot read the image (a bytes-like object is required"),
        (gzip.compress(b"a tar", mtime=0), "the image is not an image that can be read (JPEG"),
        (None, "the image is of the type NoneType, not a path, bytes, "),
        (b"", "the image is not an image that can be read (JPEG"),
        # Pillow would start another program for an EPS file.
        (encoded(smooth_photo(), "EPS"), "the image is not an image that can be read"),
        (Image.new("RGB", (0, 5)), "the image has no pixels"),
        *((jpeg_2000(mode, bits), DEPTH) for mode, bits in (("RGB", 16), ("L", 4))),
        (encoded(row([0, 65535], "uint16"), "JPEG2000", num_resolutions=1), DEPTH),
        (encoded(row([-100, 155], "int32"), "TIFF"), SIGNED),
        (retagged(row([0, -1], "int32"), 339, 1), SIGNED),  # Unsigned.
        (encoded(row([156, 127]), "TIFF", tiffinfo={339: 2}), SIGNED),  # -100, 127
        (np.ones(4), "the image is an array of float64 and shape (4,), not (H, W, 3)"),
        (np.full((2, 2, 3), 9.0), "the image is an array of float64 and shape (2, 2, 3), not (H"),
        # As a download leaves it whose room was taken at the start: decoded, it would be black.
        (PNG[: len(PNG) // 2].ljust(len(PNG), b"\0"), "cannot read the image ("),
    ],
)
def test_a_source_that_is_no_photo_is_refused_by_name(source: Any, message: str) -> None:
    assert refusal(source).startswith(message)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "PPM"])
def test_cut_off_in_the_middle(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    content = encoded(smooth_photo(200, 200), kind)
    path.write_bytes(content[: len(content) * 3 // 4])
    for source in (path, path.open("rb")):
        assert refusal(source, sufficient_side=50).startswith(f"cannot read {path} (")


def test_too_many_pixels_are_refused_before_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(smooth_photo(), "PNG")
    assert load_image(content, maximum_pixels=24 * 16).size == (24, 16)
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda file: pytest.fail("decoded"))
    for source in (smooth_photo(), content):
        message = refusal(source, maximum_pixels=383, sufficient_side=4)
        assert message == "the image is too large: 24 x 16 is 384 pixels, the limit is 383"


EXAMPLES = [encoded(smooth_photo(), kind) for kind in KINDS]


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
        outcome = f"photo is {loaded.mode}, {min(loaded.size) > 0}"
    except UserError as error:
        outcome = str(error).removeprefix("cannot read ")
    answers = ("photo is RGB, True", "photo is not", "photo is too", "photo is TIFF of", "photo (")
    answers += ("photo is JPEG 2000 of other than 8 bits",)
    assert outcome.startswith(answers)
    assert "\n" not in outcome


# Finding: no file here needs to be a real image.

ALL = ["photos/a.PNG", "photos/b.jpg", "photos/trip/day 2/c.webp"]


def write(*names: str) -> None:
    for path in map(Path, names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with photos at several depths and things that are not photos."""
    monkeypatch.chdir(tmp_path)
    others = ["photos/notes.txt", "photos/.hidden.jpg", "photos/.thumbnails/small.jpg"]
    write(*ALL, *others, "photos/trip/no_suffix", "documents/[b].jpg")
    (tmp_path / "empty").mkdir()
    return tmp_path


def names(*paths: str | Path) -> list[str]:
    return [path.as_posix() for path in photo_files(paths)]


def test_a_folder_is_gone_through_to_the_bottom_and_sorted(here: Path) -> None:
    assert names("photos") == names(Path("photos")) == ALL
    (here / "photos/trip/no_suffix").write_bytes(encoded(smooth_photo(), "JPEG"))
    assert names(here / "photos") == sorted(f"{here}/{n}" for n in [*ALL, "photos/trip/no_suffix"])


def test_named_files_are_taken_in_order_whatever_their_kind(here: Path) -> None:
    os.symlink("nowhere", "photos/link.jpg")
    files = ["photos/notes.txt", "photos/b.jpg", "photos/.hidden.jpg", "missing.jpg"]
    files += ["photos/trip/no_suffix", "photos/b.jpg", "photos/link.jpg"]
    assert names(*files) == files
    assert names("photos/.thumbnails") == ["photos/.thumbnails/small.jpg"]


def test_patterns(here: Path) -> None:
    assert names("photos/[b-c].jpg") == ["photos/b.jpg"]
    assert names("photos/**/*.webp") == ["photos/trip/day 2/c.webp"]
    # As if the shell had put the matches there: a file is a file, a folder is gone through.
    assert names("photos/*") == sorted([*ALL, "photos/notes.txt"])
    assert names("documents/[b].jpg") == ["documents/[b].jpg"]  # A file of that name exists.
    (here / "photos").rename(here / "Trip [2020]")
    assert names("Trip [2020]/[b-c].jpg") == ["Trip [2020]/b.jpg"]
    assert names(here / "Trip [2020]/**/*.webp") == [f"{here}/Trip [2020]/trip/day 2/c.webp"]


def test_names_in_another_case_or_with_backslashes_are_found_unless_several_are(here: Path) -> None:
    given = ["photos/A.png", "Photos/b.JPG", r"photos\trip\day 2\c.webp", f"{here}/PHOTOS/b.jpg"]
    assert names(*given) == [*ALL, f"{here}/photos/b.jpg"]
    write("empty/b.jpg", "empty/B.jpg", "empty/c.jpg")
    assert names("empty/b.JPG", "empty/C.jpg") == ["empty/b.JPG", "empty/c.jpg"]


def test_raw_files_and_videos_in_folders_are_counted(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # Without exiftool.
    write(*(f"photos/{n}" for n in ("b.NEF", "trip/c.cr3", ".x.dng", "d.MP4", "e.jxl", "b.xmp")))
    write("empty/b.NEF")
    notes: list[str] = []
    assert len(photo_files(["photos", "documents/[b].jpg"], note=notes.append)) == 4
    listed = "1 other picture, 2 raw files, 1 video"
    assert notes == [f"photos: left out: {listed} (exiftool would read raw files)"]
    refuses(r"folder empty holds no images, but 1 raw file ", photo_files, ["empty"])


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("file:///a%20dog%23.jpg", "/a dog#.jpg"),
        ("FILE://localhost/%C3%A9/%FF.jpg", "/\xe9/\udcff.jpg"),
        ("file:/a.jpg", "/a.jpg"),
        ("file:///C:/a.jpg", "C:/a.jpg"),
        *((path, path) for path in ("file:a.jpg", "https://a/b%20c.jpg", "photos/100%20.jpg")),
    ],
)
def test_addresses_of_file_managers_are_paths(address: str, path: str) -> None:
    assert local_path(address) == path


PROBLEMS = {"no/*.jpg": "no/*.jpg matches no file", "empty": "folder empty holds no images"}
PROBLEMS["linked"] = "folder linked/up is a symbolic link and was not entered"


@pytest.mark.parametrize("path", PROBLEMS)
def test_problems_are_reported_and_the_rest_is_found(here: Path, path: str) -> None:
    write("linked/a.jpg")
    os.symlink("..", "linked/up")
    reports: list[str] = []
    found = photo_files(["photos/b.jpg", path], reports.append)
    assert found == [Path("photos/b.jpg"), *Path("linked").glob("a.jpg")][: 1 + (path == "linked")]
    assert [report.startswith(PROBLEMS[path]) for report in reports] == [True]
    refuses(rf"^{re.escape(PROBLEMS[path])}", photo_files, [path])


def test_files_that_systems_leave_in_folders_are_no_photos(here: Path) -> None:
    write("nas/@eaDir/1.jpg/THUMB.jpg", "nas/#recycle/1.jpg", "nas/._1.jpg", "nas/1.jpg")
    assert names("nas") == names("nas/**/*.jpg") == ["nas/1.jpg"]
    assert names("nas/#recycle/*.jpg") == ["nas/#recycle/1.jpg"]
