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
_MORE = etree.XPath(
    "//comment() | //text()[normalize-space()] | //rdf:Description/@*[name() != 'rdf:about'] | "
    "//*[not(self::x:xmpmeta or self::rdf:RDF or self::rdf:Description)]",
    namespaces=_NAMESPACES | {"x": "adobe:ns:meta/"},
)


class Packet:
    """A packet as plain values. Reading it changes nothing, and writing only what differs.

    content: of an XMP file; None makes a new packet. name: of its file, for messages.
    properties: the known ones; those in other forms than a text or an array of texts, too.
    obstacle: why it is not written, "" if it may be.
    """

    def __init__(self, content: bytes | None, name: str) -> None:
        self.is_new, self.name, self.obstacle = content is None, name, ""
        try:
            parser = etree.XMLParser(resolve_entities=False, no_network=True)
            root = etree.fromstring(_NEW if content is None else content, parser)
        except etree.XMLSyntaxError as error:
            raise UserError(f"{name} is not valid XML ({error.msg}) and was left alone") from None
        self._tree = root.getroottree()
        roots = [*root.iter(f"{_RDF}RDF")]
        if not roots or self._tree.docinfo.doctype:
            raise UserError(f"{name} is not XMP, or declares a document type, and was left alone")
        if len(roots) > 1:
            self.obstacle = "has several rdf:RDF"
        self.properties: dict[str, Sequence[Entry]] = {}
        for part in (part for each in roots for part in each.iterchildren(etree.Element)):
            for name, value in part.attrib.items():
                self._add(_short(name), [("", value)])
            for element in part.iterchildren(etree.Element):
                self._add(_short(element.tag), *_entries(element))

    @property
    def is_empty(self) -> bool:
        """Whether it has neither properties nor comments nor text."""
        return not (self.obstacle or _MORE(self._tree))

    def replaced(self, new: Properties) -> bytes | None:
        """The content with other properties; None if they are the same.

        Raises `UserError` if there is an obstacle.
        """
        names = [
            name
            for name in {**self.properties, **new}
            if name.split(":")[0] in _NAMESPACES
            and {*new.get(name, ())} != {*self.properties.get(name, ())}
        ]
        if names and self.obstacle:
            raise UserError(f"{self.name} {self.obstacle} and was left alone")
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
        return bytes(etree.tostring(tree, encoding="UTF-8")) if names else None

    def _add(self, name: str, entries: Sequence[Entry], is_odd: bool = False) -> None:
        """Take a property's value. is_odd: it is neither a text nor an array of texts."""
        if name in (*XMP_DESCRIBING, SUBJECT, EXTENSION) or name.startswith("captioner:"):
            if is_odd or name in self.properties:
                self.obstacle = f"has {name} in an unknown form"
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


def _entries(element: etree._Element) -> tuple[list[Entry], bool]:
    """The items of an array of texts, or a text; and whether it is something else."""
    children = [*element.iterchildren(etree.Element)]
    array = children[0] if len(children) == 1 else element
    is_array = array.tag in (f"{_RDF}Alt", f"{_RDF}Bag", f"{_RDF}Seq")
    items = element.findall(f".//{_RDF}li") or ([] if is_array else [element])
    are_plain = all(not len(item.xpath("*")) and {*item.attrib} <= {_LANGUAGE} for item in items)
    if is_array:  # Comments count, and loose text, and other items than `rdf:li`.
        loose = [element.text, array.text, *(each.tail for each in (array, *array))]
        are_plain &= all(each.tag == f"{_RDF}li" for each in array)
        are_plain &= not "".join(filter(None, loose)).strip()
    is_plain = are_plain and (not children or (is_array and not (element.attrib or array.attrib)))
    entries = [(item.get(_LANGUAGE, ""), _text(item)) for item in items]
    return [entry for entry in entries if entry[1] or is_array], not is_plain


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
