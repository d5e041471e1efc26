"""A person's description is seen wherever exiftool sees one, and a camera's is nobody's."""

import subprocess
import zlib
from pathlib import Path

import pytest
from photo_samples import chunk, iptc, photoshop
from PIL import Image
from samples import Patch, save_described, words_of_person, xmp_packet

from captioner.library import Library, Places, Words
from captioner.library.cameras import by_people

MINE = "Grandma at the Bodensee, 祖母"
XMP = xmp_packet(f"<dc:description>{MINE}</dc:description>")
UTF8 = MINE.encode()
RECORD = photoshop(iptc(UTF8))
IPTC = b"\n8bim\n%8d\n%s\n" % (len(RECORD), RECORD.hex().encode())

XMP_TAGS = ["XMP-dc:Description", "XMP-iptcCore:AltTextAccessibility"]
XMP_TAGS += ["XMP-iptcCore:ExtDescrAccessibility", "XMP-tiff:ImageDescription"]
XMP_TAGS += ["XMP-exif:UserComment"]
EXIF_TAGS = ["EXIF:ImageDescription", "EXIF:UserComment", "EXIF:XPComment"]
IPTC_TAGS = ["IPTC:Caption-Abstract"]
ALL = [*XMP_TAGS, *EXIF_TAGS, *IPTC_TAGS]
# What exiftool can write, and shows: docs/descriptions.md has the same table.
TAGS = {
    "jpg": [*ALL, "Comment"],
    "mpo": [*ALL, "Comment"],
    "png": [*ALL, "PNG:Description", "PNG:Comment"],
    "tif": ALL,
    "jp2": ALL,
    "jpx": ALL,
    "webp": [*XMP_TAGS, *EXIF_TAGS],
    "heic": [*XMP_TAGS, *EXIF_TAGS],
    "avif": [*XMP_TAGS, *EXIF_TAGS],
    "gif": [*XMP_TAGS, "Comment"],
    "ppm": ["Comment"],
}


def save(path: Path, **options: object) -> Path:
    if path.suffix == ".heic":
        pytest.importorskip("pillow_heif").register_heif_opener()
    frames = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue")]
    if path.suffix in (".gif", ".mpo") or options.get("save_all"):
        options |= {"save_all": True, "append_images": frames[1:]}
    frames[0].save(path, **options)
    return path


def assert_kept(photo: Path, words: str) -> None:
    """A caption does not come beside a person's words: without exiftool, keywords come alone."""
    assert words_of_person(photo)[:20] == words[:20]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")
        done = Library(Places("lightroom")).write(str(photo), Words("a dog"))
        assert done.files == {}
        assert done.kept in (words, "")
        assert len(done.notes) == 1


@pytest.mark.slow
@pytest.mark.exiftool
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("suffix", TAGS)
def test_tags_that_exiftool_shows_are_read(suffix: str, tmp_path: Path) -> None:
    for tag in TAGS[suffix]:
        photo = save(tmp_path / f"a.{suffix}")
        is_ascii = tag in ("EXIF:ImageDescription", "Comment", *IPTC_TAGS)
        words = "Grandma at the lake" if is_ascii else MINE
        command = ["exiftool", "-q", "-m", "-overwrite_original", f"-{tag}={words}", photo]
        subprocess.run(command, check=True)
        assert_kept(photo, words)
    assert words_of_person(save(tmp_path / f"a.{suffix}")) == ""


ADOBE = b"http://ns.adobe.com/xap/1.0/\0"
PNG_TEXT, PNG_XMP = b"Description\0", b"XML:com.adobe.xmp\0"
PACKED_XMP = PNG_XMP + b"\1\0\0\0" + zlib.compress(XMP)
ITXT = b"\0\0\0\0"


def before_end(content: bytes, new: bytes) -> bytes:
    """A PNG with another chunk behind its pixels."""
    end = content.rindex(b"\0\0\0\0IEND")
    return content[:end] + new + content[end:]


# By hand, behind the pixels: what exiftool shows, but does not write so.
RARE: dict[str, bytes] = {
    "XMP behind the pixels": chunk(b"iTXt", PNG_XMP + ITXT + XMP),
    "compressed XMP": chunk(b"iTXt", PACKED_XMP),
    "ImageMagick's IPTC": chunk(b"zTXt", b"Raw profile type 8bim\0\0" + zlib.compress(IPTC)),
    "an international text": chunk(b"iTXt", PNG_TEXT + b"\0\0de\0x\0" + UTF8),
}


@pytest.mark.exiftool
@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("form", RARE)
def test_rare_forms_are_seen(form: str, tmp_path: Path) -> None:
    photo = save(tmp_path / "a.png")
    photo.write_bytes(before_end(photo.read_bytes(), RARE[form]))
    assert_kept(photo, MINE)


def test_damage_hides_nothing_and_is_named(tmp_path: Path, monkeypatch: Patch) -> None:
    photo = save(tmp_path / "a.png", pnginfo=None)
    (tmp_path / "b.gif").write_bytes(b"GIF89a")
    for _ in range(2):
        library = Library(Places("lightroom"))
        for name in ("b.gif", "gone.jpg"):
            (problem,) = library.write(str(tmp_path / name), Words("a dog")).problems
            assert name in problem
        assert library.said(str(tmp_path / "b.gif")) == []
        assert library.write(str(photo), Words("a dog")).problems == []
        monkeypatch.setenv("PATH", "")


CAMERAS = [
    "cof", "_cuva", "hdr", "smart", "bsh", "oznorWO", "sdr_HDRB", "HELLOMOTO", "Digital Camera",
    "My beautiful picture", "MEDION DIGITAL CAMERA", "VIVITAR FILM CAMERA 5", "Screenshot",
    "<KENOX S1050  / Samsung S1050>", "filter: 0; fileterIntensity: 0.0; filterMask: 0; module: 1",
    "0; fileterIntensity: 0.0; filterMask: 0", "DCIM\\100GOPRO\\GOPR2137.JPG", '{"mirror": false}',
    "SAMSUNG CAMERA PICTURES", "OLYMPUS DIGITAL CAMERA         ", "oplus_16908288", "default",
    "Exif_JPEG_PICTURE", 'charset="Ascii" Screenshot', "<Digimax S1000 / Kenox S1000>", "rptrhdr",
    "multi-frame: 1;\nbrp_mask: 0;\ndelta:1;", "runfunc: 0; algolist: 0;", "JPEG", "IMG_0001.JPG",
    "KODAK EASYSHARE CX7430 ZOOM DIGITAL CAMERA", "motionLevel: 0; weatherinfo: null;",
]  # fmt: skip
PEOPLE = [
    "Hochzeit", "Oma", "oma", "祖母", "My CAMERA", "Grandpa and his digital camera", "hdr test",
    "Left: Oma; right: Opa;", "JPEG of Oma",
]  # fmt: skip


@pytest.mark.parametrize("path", [None, ""])
def test_exif_texts_by_cameras_are_nobodys_words(
    path: str | None, tmp_path: Path, monkeypatch: Patch
) -> None:
    if path is not None:
        monkeypatch.setenv("PATH", path)
    for text in CAMERAS[:4]:
        tags = {"description": text, "user": b"ASCII\0\0\0" + text.encode()}
        copies = f"<tiff:ImageDescription><![CDATA[{text}]]></tiff:ImageDescription>"
        photo = save_described(tmp_path / "a.jpg", xmp_packet(copies), **tags)
        assert words_of_person(photo) == "", text
    for make, words in {"": "", "HUAWEI": "", "HONOR Device Co.": "", "Canon": "smart"}.items():
        exif = Image.Exif()
        exif.update({0x010E: "smart", 0x010F: make})
        assert words_of_person(save(tmp_path / "a.jpg", exif=exif)) == words


def test_in_doubt_words_are_a_persons() -> None:
    assert by_people(CAMERAS, is_exif=True) == []
    assert by_people(PEOPLE, is_exif=True) == PEOPLE
    single = ["cof", "hdr", "smart", "Screenshot", "A FILM CAMERA", "{me}"]
    assert by_people(single) == single  # Those in XMP, IPTC and PNG.
