"""Packets of XMP: parsed to plain values, and written with other values.

XMP (Adobe, *Specification Part 1*, ISO 16684-1).
"""

import re
from collections.abc import Mapping, Sequence
from copy import deepcopy

from lxml import etree

from captioner.errors import CONTROLS, UserError

_NAMESPACES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
    "tiff": "http://ns.adobe.com/tiff/1.0/",
    "exif": "http://ns.adobe.com/exif/1.0/",
    "photoshop": "http://ns.adobe.com/photoshop/1.0/",
    "Iptc4xmpCore": "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
    "captioner": "captioner:ns/1.0/",
}
_PREFIXES = {uri: prefix for prefix, uri in _NAMESPACES.items()}
_RDF = f"{{{_NAMESPACES['rdf']}}}"
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_NO_XML = re.compile(f"{CONTROLS.pattern}|[\ufffe\uffff\ud800-\udfff]")
_NEW = f"""<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="{_NAMESPACES["rdf"]}"/></x:xmpmeta>
<?xpacket end="w"?>""".encode()
MARK = _NAMESPACES["captioner"].encode()
"""Stands in a file into which captioner wrote."""

Entry = tuple[str, str]
"""The language, or "", and the text of an item of an array, or of a plain value."""
Properties = Mapping[str, Sequence[Entry]]
"""The values of a packet that captioner reads and writes, by name, such as `dc:subject`."""

ALT_TEXT = "Iptc4xmpCore:AltTextAccessibility"
EXIF_COPIES = ("tiff:ImageDescription", "exif:UserComment")
XMP_DESCRIBING = ("dc:description", *EXIF_COPIES, ALT_TEXT, "Iptc4xmpCore:ExtDescrAccessibility")
SUBJECT, EXTENSION = "dc:subject", "photoshop:SidecarForExtension"
_SHELL = {"{adobe:ns:meta/}:xmpmeta", "rdf:RDF", "rdf:Description"}


class Packet:
    """A packet as plain values. Reading it changes nothing, and writing only what differs.

    content: of an XMP file; None makes a new packet. name: of its file, for messages.
    properties: the known ones. odd: those that are neither one text nor one array of texts, which
        are read as texts and not written.
    """

    def __init__(self, content: bytes | None, name: str) -> None:
        self.is_new, self.name = content is None, name
        try:
            parser = etree.XMLParser(resolve_entities=False, no_network=True)
            root = etree.fromstring(_NEW if content is None else content, parser)
        except etree.XMLSyntaxError as error:
            raise UserError(f"{name} is not valid XML ({error.msg}) and was left alone") from None
        self._tree = root.getroottree()
        roots = [*root.iter(f"{_RDF}RDF")]
        if not roots or self._tree.docinfo.doctype:
            raise UserError(f"{name} is not XMP, or declares a document type, and was left alone")
        self.is_several = len(roots) > 1
        self.properties: dict[str, Sequence[Entry]] = {}
        self.odd: set[str] = set()
        for part in (part for each in roots for part in each.iterchildren(etree.Element)):
            for name, value in part.attrib.items():
                self._add(_short(name), [("", value)])
            for element in part.iterchildren(etree.Element):
                self._add(_short(element.tag), _entries(element), element)

    def add(self, other: "Packet") -> None:
        """Take the values of another packet of the same photo, which is not written then."""
        self.is_several = True
        for name, entries in other.properties.items():
            self.properties[name] = [*self.properties.get(name, ()), *entries]

    @property
    def is_empty(self) -> bool:
        """Whether it has neither properties nor comments nor text."""
        root = self._tree.getroot()
        elements = [*root.iter(etree.Element)]
        names = {_short(element.tag) for element in elements}
        attributes = {_short(name) for part in elements[1:] for name in part.attrib}
        text = "".join(root.itertext(etree.Element)).strip()
        has_more = self.is_several or text or self._tree.xpath("//comment()")
        return names <= _SHELL and attributes <= {"rdf:about", "about"} and not has_more

    def replaced(self, new: Properties) -> bytes | None:
        """The content with other properties; None if they are the same.

        Raises `UserError` if the packet is in several parts, or has several `rdf:RDF`.
        """
        names = [
            name
            for name in {**self.properties, **new}
            if name not in self.odd and not name.startswith("iptc:")
            if {*new.get(name, ())} != {*self.properties.get(name, ())}
        ]
        if not names:
            return None
        if self.is_several:
            raise UserError(f"{self.name} is in several parts and was left alone")
        tree = deepcopy(self._tree)
        rdf = next(tree.iter(f"{_RDF}RDF"))
        if not len(rdf):
            etree.SubElement(rdf, f"{_RDF}Description", {f"{_RDF}about": ""})
        for name in names:
            for part in rdf.iterchildren(etree.Element):
                part.attrib.pop(_long(name), None)
                for element in part.findall(_long(name)):
                    part.remove(element)
            if new.get(name):
                _append(rdf[0], name, new[name])
        etree.indent(tree, space=" ")
        return bytes(etree.tostring(tree, encoding="UTF-8"))

    def _add(self, name: str, entries: list[Entry] | None, element: etree._Element = None) -> None:
        """Take a property's value. entries: None if it is neither a text nor an array."""
        if name not in (*XMP_DESCRIBING, SUBJECT, EXTENSION) and not name.startswith("captioner:"):
            return
        if entries is None or name in self.properties:
            self.odd.add(name)
        if entries is None:
            items = element.findall(f".//{_RDF}li") or [element]
            entries = [(item.get(_LANGUAGE, ""), _text(item)) for item in items]
        self.properties[name] = [*self.properties.get(name, ()), *entries]


def _short(name: str) -> str:
    """A name with the usual prefix of its namespace, `dc:subject`."""
    uri, _, local = name.rpartition("}")
    return f"{_PREFIXES.get(uri[1:], uri + '}')}:{local}" if uri else local


def _long(name: str) -> str:
    prefix, local = name.split(":")
    return f"{{{_NAMESPACES[prefix]}}}{local}"


def _text(element: etree._Element) -> str:
    """All text of an element: also in nested elements, and as attributes."""
    hidden = (_LANGUAGE, f"{_RDF}parseType", f"{_RDF}about")
    texts = ["".join(element.itertext(etree.Element))]
    for inner in element.iter(etree.Element):
        texts += [value for name, value in inner.attrib.items() if name not in hidden]
    return " ".join(filter(None, map(str.strip, texts)))


def _entries(element: etree._Element) -> list[Entry] | None:
    """The items of an array of texts, or a text; None for anything else."""
    items, children = [element], [*element.iterchildren(etree.Element)]
    if children:
        array = children[0]
        items = [*array.iterchildren(etree.Element)]
        is_array = array.tag in (f"{_RDF}Alt", f"{_RDF}Bag", f"{_RDF}Seq") and not array.attrib
        if len(children) > 1 or element.attrib or not is_array:
            return None
    if any(item.find("*") is not None or {*item.attrib} - {_LANGUAGE} for item in items):
        return None
    entries = [(item.get(_LANGUAGE, ""), _text(item)) for item in items]
    return entries if children else [entry for entry in entries if entry[1]]


def _append(part: etree._Element, name: str, entries: Sequence[Entry]) -> None:
    """Add a property; captioner's are lists, as some programs turn texts into attributes."""
    element = etree.SubElement(part, _long(name), nsmap=_NAMESPACES)
    kind = "Alt" if name in XMP_DESCRIBING else "Seq" if "before" in name else "Bag"
    array = element if name == EXTENSION else etree.SubElement(element, f"{_RDF}{kind}")
    for language, text in entries:
        item = element if name == EXTENSION else etree.SubElement(array, f"{_RDF}li")
        item.text = _NO_XML.sub("", text)
        if language:
            item.set(_LANGUAGE, language)
    etree.cleanup_namespaces(element)
