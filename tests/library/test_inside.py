"""A person's description is seen wherever exiftool sees one, and a camera's is nobody's."""

import json
import struct
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from data_samples import iptc, photoshop, segment
from photo_samples import chunk
from PIL import Image
from samples import save_described, xmp_packet

from captioner.data.sidecars import photo_descriptions, words_of_person

MINE = "Grandma at the Bodensee, 祖母"
XMP = xmp_packet(f"<dc:description>{MINE}</dc:description>")
UTF8 = MINE.encode()
RECORD = iptc(UTF8)

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


SUFFIXES_AND_TAGS = [(suffix, tag) for suffix, tags in TAGS.items() for tag in tags]


@pytest.mark.exiftool
@pytest.mark.parametrize(("suffix", "tag"), SUFFIXES_AND_TAGS)
def test_tags_that_exiftool_shows_are_read(suffix: str, tag: str, tmp_path: Path) -> None:
    photo = save(tmp_path / f"a.{suffix}")
    assert words_of_person(photo) == ""
    is_ascii = tag in ("EXIF:ImageDescription", "Comment", *IPTC_TAGS)
    words = "Grandma at the lake" if is_ascii else MINE
    command = ["exiftool", "-q", "-m", "-overwrite_original", f"-{tag}={words}", photo]
    subprocess.run(command, check=True)
    shown = subprocess.run(["exiftool", "-j", photo], check=True, capture_output=True).stdout
    assert words in json.loads(shown)[0].values()
    assert words_of_person(photo) == words


def box(name: bytes, content: bytes) -> bytes:
    """A box of JPEG 2000."""
    return (len(content) + 8).to_bytes(4, "big") + name + content


def profile(name: bytes, content: bytes) -> bytes:
    """A chunk as ImageMagick writes it."""
    text = b"\n%s\n%8d\n%s\n" % (name, len(content), content.hex().encode())
    return chunk(b"zTXt", b"Raw profile type " + name + b"\0\0" + zlib.compress(text))


def extended(packet: bytes) -> bytes:
    """The segments of XMP in several parts, in the wrong order."""
    head = b"http://ns.adobe.com/xmp/extension/\0" + b"A" * 32 + len(packet).to_bytes(4, "big")
    middle = len(packet) // 2
    parts = ((middle, packet[middle:]), (0, packet[:middle]))
    return b"".join(segment(0xE1, head + struct.pack(">I", at) + part) for at, part in parts)


def exif() -> bytes:
    tags = Image.Exif()
    tags[0x9C9C] = MINE.encode("utf-16-le")
    return tags.tobytes()


ADOBE = b"http://ns.adobe.com/xap/1.0/\0"
OTHER = xmp_packet("<dc:title>1</dc:title>")
UUID_XMP = bytes.fromhex("be7acfcb97a942e89c71999491e3afac")
PNG_TEXT, PNG_XMP = b"Description\0", b"XML:com.adobe.xmp\0"
XMP_SEGMENT = segment(0xE1, ADOBE + XMP)
PACKED_XMP = PNG_XMP + b"\1\0\0\0" + zlib.compress(XMP)
ITXT = b"\0\0\0\0"
TRAILER = b"\1" + bytes(range(255, -1, -1)) + b"\0"
AT_START, AT_END = (lambda all_, new: all_[:2] + new + all_[2:]), (lambda all_, new: all_ + new)


def before_end(content: bytes, new: bytes) -> bytes:
    """Behind the pixels of PNG, and behind the frames of GIF."""
    end = content.rindex(b"\0\0\0\0IEND") if content.startswith(b"\x89PNG") else -1
    return content[:end] + new + content[end:]


# By hand: what exiftool shows, too, but does not write so.
RARE: dict[str, tuple[str, Callable[[bytes, bytes], bytes], bytes]] = {
    "XMP in several parts": ("jpg", AT_START, segment(0xE1, ADOBE + OTHER) + extended(XMP)),
    "the first of two packets": ("jpg", AT_START, XMP_SEGMENT + segment(0xE1, ADOBE + OTHER)),
    "XMP in UTF-16": ("jpg", AT_START, segment(0xE1, ADOBE + XMP.decode().encode("utf-16"))),
    "two comments": ("jpg", AT_START, segment(0xFE, UTF8) + segment(0xFE, b"CREATOR: x")),
    "XMP behind the pixels": ("png", before_end, chunk(b"iTXt", PNG_XMP + ITXT + XMP)),
    "compressed XMP": ("png", before_end, chunk(b"iTXt", PACKED_XMP)),
    "XMP behind frames": ("apng", before_end, chunk(b"iTXt", PNG_XMP + ITXT + XMP)),
    "EXIF behind the pixels": ("png", before_end, chunk(b"eXIf", exif()[6:])),
    "ImageMagick's EXIF": ("png", before_end, profile(b"exif", exif())),
    "ImageMagick's XMP": ("png", before_end, profile(b"xmp", XMP)),
    "ImageMagick's APP1": ("png", before_end, profile(b"APP1", ADOBE + XMP)),
    "bare IPTC": ("png", before_end, profile(b"iptc", RECORD)),
    "Photoshop's IPTC": ("png", before_end, profile(b"8bim", photoshop(RECORD))),
    "a Latin text": ("png", before_end, chunk(b"zTXt", PNG_TEXT + b"\0" + zlib.compress(UTF8))),
    "an international text": ("png", before_end, chunk(b"iTXt", PNG_TEXT + b"\0\0de\0x\0" + UTF8)),
    "XMP behind the frames": ("gif", before_end, b"!\xff\x0bXMP DataXMP" + XMP + TRAILER),
    "XMP in a box of XML": ("jp2", AT_END, box(b"xml ", XMP)),
    "a box in a box": ("jp2", AT_END, box(b"asoc", box(b"uuid", UUID_XMP + XMP))),
    "a box up to the end": ("jp2", AT_END, b"\0\0\0\0uuid" + UUID_XMP + XMP),
    "Photoshop's EXIF": ("jp2", AT_END, box(b"uuid", b"\x05" * 16 + exif()[6:])),
    "digiKam's EXIF": ("jp2", AT_END, box(b"uuid", b"JpgTiffExif->JP2" + exif())),
}


@pytest.mark.parametrize("form", RARE)
def test_rare_forms_are_seen(form: str, tmp_path: Path) -> None:
    suffix, insert, new = RARE[form]
    options = {"format": "PNG", "save_all": True} if suffix == "apng" else {}
    photo = save(tmp_path / f"a.{suffix}", **options)
    photo.write_bytes(insert(photo.read_bytes(), new))
    assert words_of_person(photo) == MINE


@pytest.mark.parametrize("is_big", [False, True])
@pytest.mark.parametrize("tag", [270, 700, 33723])
def test_tiff_and_big_tiff_are_seen(tag: int, is_big: bool, tmp_path: Path) -> None:
    content = {270: UTF8, 700: XMP, 33723: RECORD}[tag]
    photo = save(tmp_path / "a.tif", tiffinfo={tag: content}, big_tiff=is_big)
    assert words_of_person(photo) == MINE


def test_comments_of_codestreams_are_seen_but_for_those_of_programs(tmp_path: Path) -> None:
    assert words_of_person(save(tmp_path / "a.j2k", comment=MINE)) == MINE
    assert words_of_person(save(tmp_path / "a.j2k")) == ""


def test_damage_hides_nothing_else(tmp_path: Path) -> None:
    photo = save(tmp_path / "a.png")
    damaged_profile = b"Raw profile type iptc\0\0" + zlib.compress(b"\n\n\nzz")
    bad = [b"Description\0\0x", damaged_profile, b"xmp\0\0"]
    new = b"".join(chunk(b"zTXt", each) for each in bad)
    new += chunk(b"tEXt", b"xmp\0<x") + chunk(b"tEXt", b"no text") + chunk(b"eXIf", b"II*\0\xff")
    photo.write_bytes(before_end(photo.read_bytes(), new + profile(b"iptc", RECORD)) + b"\0\0")
    assert words_of_person(photo) == MINE
    (tmp_path / "b.gif").write_bytes(b"GIF89a")
    assert [*photo_descriptions(tmp_path / "b.gif")] == []


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


def test_exif_texts_by_cameras_are_nobodys_words_in_doubt_a_persons(tmp_path: Path) -> None:
    for text in CAMERAS:
        tags = {"description": text, "user": b"ASCII\0\0\0" + text.encode()}
        copies = f"<tiff:ImageDescription><![CDATA[{text}]]></tiff:ImageDescription>"
        photo = save_described(tmp_path / "a.jpg", xmp_packet(copies), **tags)
        assert words_of_person(photo) == "", text
    for text in PEOPLE:
        photo = save_described(tmp_path / "a.png", user=b"UNICODE\0" + text.encode("utf-16-le"))
        assert words_of_person(photo) == text
    for make, words in {"": "", "HUAWEI": "", "HONOR Device Co.": "", "Canon": "smart"}.items():
        exif = Image.Exif()
        exif.update({0x010E: "smart", 0x010F: make})
        assert words_of_person(save(tmp_path / "a.jpg", exif=exif)) == words


@pytest.mark.parametrize("text", ["cof", "hdr", "smart", "Screenshot", "A FILM CAMERA", "{me}"])
def test_a_single_word_in_xmp_iptc_and_png_is_a_persons(text: str, tmp_path: Path) -> None:
    packet = xmp_packet(f"<dc:description>{text}</dc:description>")
    photo = save(tmp_path / "b.png")
    photo.write_bytes(before_end(photo.read_bytes(), profile(b"iptc", iptc(text.encode()))))
    described = save_described(tmp_path / "a.webp", packet)
    named = save_described(tmp_path / "a.png", png=text)
    assert [*map(words_of_person, (described, named, photo))] == [text] * 3
