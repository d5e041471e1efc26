"""Descriptions of photos: where they are, which count, and who wrote them."""

from pathlib import Path

import pytest
from data_samples import read
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from captioner.cli.descriptions import write_xmp
from captioner.data.example import Problems
from captioner.data.readers import read_splits
from captioner.data.table import photo_descriptions
from captioner.data.xmp import Description, XmpPacket
from captioner.errors import UserError

OWN = Description("a dog", [])


def packet(description: str) -> bytes:
    """As another program writes it."""
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF '
        'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:description><rdf:Alt>'
        f'<rdf:li xml:lang="x-default">{description}</rdf:li><rdf:li xml:lang="de">Hund</rdf:li>'
        "</rdf:Alt></dc:description></rdf:Description></rdf:RDF></x:xmpmeta>"
    ).encode()


def own_packet() -> bytes:
    own = XmpPacket(None, "new")
    own.merge(OWN)
    return own.as_block()


def iptc(caption: bytes) -> bytes:
    """Photoshop's block of a JPEG with the caption, as IPTC's dataset 2:120."""
    record = b"\x1c\x02\x78" + len(caption).to_bytes(2, "big") + caption
    resource = b"8BIM\x04\x04\x00\x00" + len(record).to_bytes(4, "big") + record
    content = b"Photoshop 3.0\x00" + resource + b"\x00" * (len(record) % 2)
    return b"\xff\xed" + (len(content) + 2).to_bytes(2, "big") + content


def save(path: Path, xmp: bytes | None = None, exif: str = "", caption: bytes = b"") -> Path:
    data = Image.Exif()
    if exif:
        data[0x010E] = exif
    text = PngInfo()
    if xmp and path.suffix == ".tif":
        data[700] = xmp
    elif xmp:
        text.add_itxt("XML:com.adobe.xmp", xmp.decode())
    Image.new("RGB", (8, 8)).save(path, xmp=xmp or b"", exif=data, pnginfo=text)
    if caption:
        content = path.read_bytes()
        path.write_bytes(content[:2] + iptc(caption) + content[2:])
    return path


def found(photo: Path) -> list[tuple[str, bool]]:
    return [(text, is_own) for _, text, is_own in photo_descriptions(photo)]


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.webp", "a.tif"])
def test_descriptions_inside_are_read_in_order(tmp_path: Path, name: str) -> None:
    photo = save(tmp_path / name, packet(" A dog &amp; a cat\n"), "From EXIF")
    assert found(photo) == [("A dog & a cat", False), ("From EXIF", False)]


@pytest.mark.parametrize("caption", ["Ein Hündchen".encode(), "Ein Hündchen".encode("latin-1")])
def test_iptc_is_in_utf_8_or_latin_1(tmp_path: Path, caption: bytes) -> None:
    photo = save(tmp_path / "a.jpg", exif="From EXIF", caption=caption)
    assert found(photo) == [("Ein Hündchen", False), ("From EXIF", False)]


@pytest.mark.parametrize("text", ["SONY DSC", "OLYMPUS DIGITAL CAMERA  ", "DCIM\\1\\DJI.JPG"])
def test_cameras_describe_nothing(tmp_path: Path, text: str) -> None:
    # Lightroom copies such a text from EXIF into the sidecar.
    (tmp_path / "a.xmp").write_bytes(packet(text))
    assert found(save(tmp_path / "a.jpg", packet(text), text)) == []
    assert found(save(tmp_path / "a.jpg", exif=f"A {text} dog")) == [(f"A {text} dog", False)]


def test_what_captioner_wrote_is_known_until_somebody_changes_it(tmp_path: Path) -> None:
    photo = save(tmp_path / "a.jpg", own_packet(), "By hand", caption=b"a dog")
    assert found(photo) == [("a dog", True), ("a dog", True), ("By hand", False)]
    sidecar = tmp_path / "a.jpg.xmp"
    write_xmp(sidecar, OWN)
    assert found(photo)[0] == ("a dog", True)
    changed = sidecar.read_text().replace('"x-default">a dog', '"x-default">my dog')
    sidecar.write_text(changed)
    assert found(photo)[0] == ("my dog", False)


def test_a_folder_has_descriptions_beside_and_inside_its_photos(tmp_path: Path) -> None:
    for number, xmp in enumerate((packet("Inside"), packet("Inside"), packet("Inside"), None)):
        save(tmp_path / f"{number}.jpg", xmp, "SONY DSC")
    (tmp_path / "0.txt").write_text("In a text\n")
    (tmp_path / "0.xmp").write_bytes(packet("In a sidecar"))
    (tmp_path / "1.jpg.xmp").write_bytes(packet("In a sidecar"))
    save(tmp_path / "4.jpg", own_packet())
    images, problems = read(None, tmp_path)
    captions = {"0.jpg": "In a text", "1.jpg": "In a sidecar", "2.jpg": "Inside"}
    assert {each.image_id: each.captions[0] for each in images} == captions
    counts = "5 photos, 1 with a text beside them, 1 with an XMP sidecar, 1 described inside, "
    assert problems.sentences == [
        f"folder {tmp_path}: {counts}2 without; captions by captioner left out: 1"
    ]
    (all_of_them,) = read_splits(None, tmp_path, None, [None], Problems(by_captioner=True))
    assert {each.image_id: each.captions[0] for each in all_of_them} == {
        **captions,
        "4.jpg": "a dog",
    }
    with pytest.raises(UserError, match=r"5 photos, 1 with .* out: 1; .*, too few to validat"):
        read_splits(None, tmp_path, None, ["train", "val"], Problems())


def test_a_damaged_sidecar_is_a_problem_and_a_damaged_photo_has_no_description(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff")
    save(tmp_path / "b.jpg", exif="A dog")
    assert [each.image_id for each in read(None, tmp_path).images] == ["b.jpg"]
    (tmp_path / "a.xmp").write_text("<x")
    with pytest.raises(UserError, match=r"1 unreadable description \(.*a\.xmp is not valid XML"):
        read(None, tmp_path)
