"""XMP packets: reads descriptions, merges captions and keywords into those of other programs.

Adobe, *XMP Specification Part 1* (ISO 16684-1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lxml import etree

from captioner import __version__
from captioner.errors import UserError

_NAMESPACES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
    "xmp": "http://ns.adobe.com/xap/1.0/",
    "captioner": "captioner:ns/1.0/",
}
_RDF, _DC, _XMP, _OWN = (f"{{{uri}}}" for uri in _NAMESPACES.values())
"""Prefixes of names. `_OWN` holds copies of what captioner wrote, to know it again."""
_ITEM = f"{_RDF}li"

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"

_EMPTY = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/">'
    b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/></x:xmpmeta>'
)

_BLOCK = b"""<?xpacket begin="\xef\xbb\xbf" id="W5M0MpCehiHzreSzNTczkc9d"?>
%b
<?xpacket end="w"?>"""


@dataclass(frozen=True)
class Description:
    """What a photo is described by.

    caption: on one line. keywords: English. language: of the caption, a tag such as "en".
    confidence: of the caption, if the model is calibrated.
    """

    caption: str
    keywords: Sequence[str]
    language: str = "en"
    confidence: float | None = None


class XmpPacket:
    """An XMP packet, with what captioner wrote before told from all else, which is kept.

    content: of an XMP file; None makes a new packet. name: of its file, for messages.
    Raises `UserError` if it is no XMP.
    """

    def __init__(self, content: bytes | None, name: str) -> None:
        self._rdf = _parsed(_EMPTY if content is None else content, name)

    @property
    def description(self) -> str:
        """The default for all languages, which stands first; "" if there is none."""
        return next(iter(_texts(_items(self._rdf, f"{_DC}description", "Alt"))), "")

    @property
    def own_descriptions(self) -> list[str]:
        """The descriptions that captioner wrote."""
        return _texts(_items(self._rdf, f"{_OWN}description", "Bag"))

    @property
    def own_keywords(self) -> list[str]:
        """The keywords that captioner wrote."""
        return _texts(_items(self._rdf, f"{_OWN}subject", "Bag"))

    def merge(
        self,
        description: Description,
        overwrite: bool = False,
        iptc_caption: str = "",
        iptc_keywords: Sequence[str] = (),
    ) -> bool:
        """Set `dc:description`, which is the default for all languages, and `dc:subject`.

        captioner becomes the creator tool if there is no other.

        overwrite: replace a description that captioner did not write; otherwise it stays.
        iptc_caption, iptc_keywords: beside the packet in a photo.
        Returns whether the description was set.
        """
        is_set = _describe(self._rdf, description, overwrite, iptc_caption)
        _set_keywords(self._rdf, description.keywords, iptc_keywords)
        confidence = _property(self._rdf, f"{_OWN}confidence")
        if description.confidence is None:
            confidence.getparent().remove(confidence)
        else:
            confidence.text = f"{description.confidence:.2f}"
        creator = _property(self._rdf, f"{_XMP}CreatorTool")
        if not creator.text or creator.text.startswith("captioner "):
            creator.text = f"captioner {__version__}"
        return is_set

    def as_file(self) -> bytes:
        """The packet as the content of an XMP file."""
        document = self._rdf.getroottree()
        etree.indent(document, space=" ")
        content: bytes = etree.tostring(document, encoding="UTF-8", xml_declaration=True)
        return content

    def as_block(self) -> bytes:
        """The packet as photos hold it."""
        root = self._rdf.getroottree().getroot()
        content: str = etree.tostring(root, encoding="unicode", with_tail=False)
        return _BLOCK % content.encode()


def _describe(
    rdf: etree._Element, description: Description, overwrite: bool, iptc_caption: str
) -> bool:
    """Set the description; False if there is one by somebody else that is not to be replaced."""
    caption, language = description.caption, description.language
    own = _items(rdf, f"{_OWN}description", "Bag")
    replaceable = {"", caption, *_texts(own)}
    if iptc_caption not in replaceable and not overwrite:
        return False
    descriptions = _items(rdf, f"{_DC}description", "Alt")
    replaced = [
        item
        for item in descriptions.findall(_ITEM)
        if item.get(_LANGUAGE, "x-default").lower() in ("x-default", language)
    ]
    if not overwrite and any((item.text or "").strip() not in replaceable for item in replaced):
        return False
    for item in replaced:
        descriptions.remove(item)
    for place, tag in enumerate(("x-default", language)):
        item = etree.Element(_ITEM, {_LANGUAGE: tag})
        item.text = caption
        descriptions.insert(place, item)
    own.clear()
    for text in dict.fromkeys(_texts(descriptions)):
        if text in replaceable:
            etree.SubElement(own, _ITEM).text = text
    return True


def _set_keywords(
    rdf: etree._Element, keywords: Sequence[str], iptc_keywords: Sequence[str]
) -> None:
    """Replace the keywords that captioner wrote; those of the user stay."""
    own = _items(rdf, f"{_OWN}subject", "Bag")
    own_texts = _texts(own)
    own.clear()
    subjects = _items(rdf, f"{_DC}subject", "Bag")
    for item in subjects.findall(_ITEM):
        if item.text in own_texts:
            subjects.remove(item)
    others = {*_texts(subjects), *iptc_keywords} - set(own_texts)
    for word in keywords:
        if word not in others:
            for bag in (own, subjects):
                etree.SubElement(bag, _ITEM).text = word


def _parsed(content: bytes, name: str) -> etree._Element:
    """The `rdf:RDF` element of a packet."""
    try:
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        raise UserError(f"{name} is not valid XML ({error.msg}) and was left alone") from None
    if root.getroottree().docinfo.doctype:
        raise UserError(f"{name} declares a document type, unlike XMP files, and was left alone")
    rdf = next(root.iter(f"{_RDF}RDF"), None)
    if rdf is None:
        raise UserError(f"{name} is XML without an XMP packet and was left alone")
    return rdf


def _property(rdf: etree._Element, name: str) -> etree._Element:
    """The element of a property; made if missing, also from its form as an attribute."""
    descriptions = rdf.findall(f"{_RDF}Description")
    if not descriptions:
        descriptions = [etree.SubElement(rdf, f"{_RDF}Description", {f"{_RDF}about": ""})]
    for description in descriptions:
        found = description.find(name)
        if found is not None:
            return found
    owner = next((each for each in descriptions if name in each.attrib), descriptions[0])
    made = etree.SubElement(owner, name, nsmap=_NAMESPACES)
    made.text = owner.attrib.pop(name, None)
    etree.cleanup_namespaces(made)
    return made


def _items(rdf: etree._Element, name: str, kind: str) -> etree._Element:
    """The array of a property, a `rdf:Alt` or `rdf:Bag`; a plain value becomes its only item."""
    parent = _property(rdf, name)
    for found in parent.iterchildren(*(f"{_RDF}{form}" for form in ("Alt", "Bag", "Seq"))):
        return found
    text, parent.text = (parent.text or "").strip(), None
    array = etree.SubElement(parent, f"{_RDF}{kind}")
    if text:
        etree.SubElement(array, _ITEM).text = text
    return array


def _texts(array: etree._Element) -> list[str]:
    return [item.text or "" for item in array.findall(_ITEM)]
