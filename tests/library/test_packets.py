"""Packets of XMP: whose words are whose, and all that is not captioner's stays."""

from pathlib import Path

import pytest
from lxml import etree
from samples import exiftool, own_packet, write_xmp, xmp_packet, xmp_texts

from captioner.errors import UserError
from captioner.library import Words
from captioner.library.merge import described, is_own, merged, undone
from captioner.library.xmp import Packet

MINE = "my own words"
DOG = Words("a dog & a cat", ["dog", "cat"], confidence=0.5)
BOAT = Words("a boat", ["boat", "dog"])

LIGHTROOM = """\
<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="Adobe XMP Core 7.0">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about='uuid:1' xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmp:Rating="4"
    xmp:CreatorTool = "Lightroom &gt; &#65;"
    xmlns:dc="http://purl.org/dc/elements/1.1/">
   <!-- by hand > -->
   <dc:subject>
    <rdf:Bag>
     <rdf:li>holiday</rdf:li>
     <rdf:li>dog</rdf:li>
    </rdf:Bag>
   </dc:subject>
   <dc:description><rdf:Alt>
     <rdf:li xml:lang="x-default">Rex</rdf:li>
     <rdf:li xml:lang="de">Ein Hund</rdf:li>
   </rdf:Alt></dc:description>
   <foreign xmlns="urn:f" a='"'/>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
""".encode()
OTHER_PREFIXES = b"""<a:RDF xmlns:a="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><a:Description
 xmlns:b="http://purl.org/dc/elements/1.1/"><b:subject><a:Bag><a:li>Rex</a:li></a:Bag></b:subject>
 </a:Description></a:RDF>"""
EMPTY = b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/>'
PACKETS = {
    "Lightroom": LIGHTROOM,
    "in a line": xmp_packet("<dc:subject><rdf:Bag><rdf:li>Rex</rdf:li></rdf:Bag></dc:subject>"),
    "other prefixes": OTHER_PREFIXES,
    "a byte order mark": b"\xef\xbb\xbf" + LIGHTROOM,
    "lines of Windows": LIGHTROOM.replace(b"\n", b"\r\n"),
}


def write(content: bytes | None, words: Words, overwrite: bool = True) -> bytes:
    packet = Packet(content, "it")
    is_changed = packet.update(merged(packet, words, overwrite, keywords_only=False).properties)
    return packet.content if is_changed else content or b""


def undo(content: bytes) -> bytes:
    packet = Packet(content, "it")
    return packet.content if packet.update(undone(packet).properties) else content


def form_of(content: bytes) -> list[tuple[object, ...]]:
    """The elements and comments of a packet, in no order."""
    nodes = etree.fromstring(content).iter()
    texts = ((f"{node.tag}", f"{node.text or ''}".strip(), node) for node in nodes)
    return sorted((tag, text, sorted(node.attrib.items())) for tag, text, node in texts)


@pytest.mark.parametrize("form", PACKETS)
def test_what_is_written_is_taken_out_and_all_else_stays(form: str) -> None:
    content = written = PACKETS[form]
    for words in (DOG, BOAT, DOG):
        written = write(written, words)
        assert write(written, words) == written  # Writing twice changes nothing.
        assert next(iter(described(Packet(written, "it")))) == words.caption
        etree.fromstring(written)
    assert form_of(undo(written)) == form_of(content)
    assert undo(content) == content
    assert not is_own(Packet(written, "it"))


def test_a_new_packet_is_captioners_until_somebody_adds_to_it() -> None:
    new = write(None, DOG)
    assert is_own(Packet(new, "it"))
    assert not is_own(Packet(write(EMPTY, DOG), "it"))  # Another program made it.
    assert not is_own(Packet(write(None, Words("Rex", by_person=True)), "it"))
    end = new.rindex(b"</rdf:RDF>")
    for mine in (
        b"<!-- mine -->",
        b'<rdf:Description rdf:about="" xmlns:a="urn:a" a:rating="5"/>',
        b"<rdf:Description><a xmlns='urn:a'/></rdf:Description>",
        b"mine",
    ):
        assert not is_own(Packet(new[:end] + mine + new[end:], "it"))


def test_a_description_stands_once_and_a_language_beside_it() -> None:
    words = Words("ein Hund", ["Hund"], "de")
    for content in (None, LIGHTROOM):
        written = write(content, words)
        for name in ("dc:description", "Iptc4xmpCore:AltTextAccessibility"):
            assert Packet(written, "it").properties[name] == [("x-default", "ein Hund")]
        assert xmp_texts(written, "captioner:language") == ["de"]
        assert xmp_texts(write(written, DOG), "captioner:language") == []
    # Earlier versions wrote the text for English, too.
    item = '<rdf:li xml:lang="{}">a dog</rdf:li>'
    both = f"<rdf:Alt>{item.format('x-default')}{item.format('en')}</rdf:Alt>"
    own = "<captioner:description xmlns:captioner='captioner:ns/1.0/'>a dog</captioner:description>"
    old = xmp_packet(f"<dc:description>{both}</dc:description>{own}")
    assert described(Packet(old, "it")) == {"a dog": "captioner"}
    assert Packet(write(old, DOG), "it").properties["dc:description"] == [
        ("x-default", DOG.caption)
    ]
    assert described(Packet(undo(old), "it")) == {}


DESCRIBED = "<dc:description><rdf:Alt><rdf:li xml:lang='{}'>{}</rdf:li></rdf:Alt></dc:description>"
PLAIN = {
    "a foreign language": DESCRIBED.format("de-DE", MINE),
    "the language c": DESCRIBED.format("c", MINE),
    "of TIFF": f"<tiff:ImageDescription>{MINE}</tiff:ImageDescription>",
    "alt text": "<i:AltTextAccessibility xmlns:i='http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/'>"
    f"<rdf:Alt><rdf:li xml:lang='en'>{MINE}</rdf:li></rdf:Alt></i:AltTextAccessibility>",
}
PLACES = {"of TIFF": "before_ImageDescription", "alt text": "before_AltTextAccessibility"}


@pytest.mark.parametrize("form", PLAIN)
def test_a_description_in_any_language_or_place_is_a_persons(form: str) -> None:
    content = xmp_packet(PLAIN[form])
    assert described(Packet(content, "it")) == {MINE: "person"}
    written = write(content, DOG)
    assert described(Packet(written, "it")) == {DOG.caption: "captioner"}
    place = PLACES.get(form, "before_description")
    assert xmp_texts(written, f"captioner:{place}") == [MINE]
    assert MINE in described(Packet(undo(written), "it"))


@pytest.mark.parametrize(
    "value",
    [
        "><rdf:Alt><rdf:li><dc:b>my own</dc:b> words</rdf:li></rdf:Alt></dc:{}>",
        " rdf:parseType='Resource'><rdf:value>my own words</rdf:value></dc:{}>",
        "><rdf:Bag><rdf:li rdf:value='my own words'/></rdf:Bag></dc:{}>",
        "><rdf:Bag><rdf:li>a</rdf:li></rdf:Bag></dc:{0}><dc:{0}>b</dc:{0}>",
        "><rdf:Bag><rdf:li>a</rdf:li>my own words</rdf:Bag></dc:{}>",
        "><rdf:Bag>my own words<rdf:li>a</rdf:li></rdf:Bag></dc:{}>",
        "><rdf:Bag><rdf:li>a</rdf:li><rdf:value>my own words</rdf:value></rdf:Bag></dc:{}>",
        "><rdf:Bag rdf:ID='mine'><rdf:li>a</rdf:li></rdf:Bag></dc:{}>",
        "><rdf:Bag><!-- my own words --><rdf:li>a</rdf:li></rdf:Bag></dc:{}>",
        "><!-- my own words -->a</dc:{}>",
        "><?my own words?>a</dc:{}>",
    ],
)
@pytest.mark.parametrize("name", ["description", "subject"])
def test_a_property_in_another_form_is_left_alone(name: str, value: str) -> None:
    with pytest.raises(UserError, match=f"it has dc:{name} in an unknown form and was left alone"):
        Packet(xmp_packet(f"<dc:{name}{value.format(name)}"), "it")


LAUGHS = "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 10))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is not valid XML"),
        ("<svg xmlns='http://www.w3.org/2000/svg'/>", "is not XMP, or declares"),
        ("<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><x>&a;</x>", "is not XMP, or"),
        (f"<!DOCTYPE x [<!ENTITY a0 'ha'>{LAUGHS}]><x y='&a9;'>&a9;</x>", "is not valid XML"),
        ("<a>" * 100_000, "is not valid XML"),
        (xmp_packet("").decode().replace("><rdf:Description", f">{EMPTY.decode()}<rdf:Description")
            .replace("</x:xmpmeta>", f"{EMPTY.decode()}</x:xmpmeta>"), "has several rdf:RDF"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_xmp_is_left_alone(content: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "photo.xmp"
    path.write_text(content, encoding="latin-1")
    before = path.read_bytes()
    with pytest.raises(UserError, match=rf"photo\.xmp .*{sentence}"):
        write_xmp(path, DOG)
    assert path.read_bytes() == before


@pytest.mark.exiftool
@pytest.mark.usefixtures("library")
def test_other_programs_read_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "photo.xmp"
    path.write_bytes(LIGHTROOM)
    before = exiftool(path)
    del before["XMP-dc:Description-de"]  # The packet has a copy.
    for words, keywords in ((DOG, ["holiday", "dog", "cat"]), (BOAT, ["holiday", "dog", "boat"])):
        write_xmp(path, words, overwrite=True)
        assert exiftool(path) == before | {
            "XMP-dc:Description": words.caption,
            "XMP-iptcCore:AltTextAccessibility": words.caption,
            "XMP-dc:Subject": keywords,
        }


@pytest.mark.parametrize(
    "place",
    ["//dc:description", "//dc:description/*/*", "//dc:description//*[@xml:lang='x-default']"],
)
def test_words_removed_by_a_person_do_not_come_back(place: str, tmp_path: Path) -> None:
    path = tmp_path / "a.xmp"
    path.write_bytes(xmp_packet("<dc:subject><rdf:Bag><rdf:li>Rex</rdf:li></rdf:Bag></dc:subject>"))
    write_xmp(path, Words("a dog", ["dog", "cat"]))
    names = {"dc": "http://purl.org/dc/elements/1.1/"}
    root = etree.fromstring(path.read_bytes())
    for element in root.xpath(f"{place}|//dc:subject//*[.='cat']", namespaces=names):
        element.getparent().remove(element)
    path.write_bytes(etree.tostring(root))
    for keywords in (["cat", "boat"], ["dog", "cat"], ["cat", "dog"]):
        done = write_xmp(path, Words("a boat", keywords))
        assert done.notes == [
            "a person took its caption out; --overwrite-descriptions writes it again"
        ]
        assert xmp_texts(path, "dc:description") == []
        assert xmp_texts(path, "dc:subject") == ["Rex", *(set(keywords) - {"cat"})]
    assert write_xmp(path, DOG, overwrite=True).notes == []
    assert xmp_texts(path, "dc:description") == [DOG.caption]


def test_a_persons_keyword_in_another_case_is_not_doubled() -> None:
    words = "<rdf:Bag><rdf:li>Cat</rdf:li><rdf:li>STRASSE</rdf:li></rdf:Bag>"
    content = write(xmp_packet(f"<dc:subject>{words}</dc:subject>"), DOG)
    content = write(content, Words("a cat", ["cat", "straße", "dog"]))
    assert xmp_texts(content, "captioner:subject") == ["dog"]
    assert xmp_texts(content, "dc:subject") == ["Cat", "STRASSE", "dog"]


def test_what_xml_cannot_hold_is_left_out() -> None:
    content = write(None, Words("a \x01\ufffe\ud800<dog> &\x85", ["]]>"]))
    assert xmp_texts(content, "dc:description") == ["a <dog> &"]
    assert xmp_texts(content, "dc:subject") == ["]]>"]
    mine = xmp_packet(DESCRIBED.format("x-default", "my\x85own"))
    assert xmp_texts(write(mine, DOG), "captioner:before_description") == ["myown"]
    assert own_packet(Words("a dog")) == write(None, Words("a dog"))
