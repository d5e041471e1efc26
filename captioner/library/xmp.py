"""Packets of XMP: parsed to plain values, and written with other values.

XMP (Adobe, *Specification Part 1*, ISO 16684-1).
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from captioner.errors import CONTROLS, UserError

if TYPE_CHECKING:  # Else captions without XMP would wait for it.
    from lxml.etree import _Element

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
_ARRAYS = (f"{_RDF}Alt", f"{_RDF}Bag", f"{_RDF}Seq")
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
_MORE = (
    "//comment() | //text()[normalize-space()] | //rdf:Description/@*[name() != 'rdf:about'] | "
    "//*[not(self::x:xmpmeta or self::rdf:RDF or self::rdf:Description)]"
)


class Packet:
    """A packet as plain values; `update` writes other values into its tree.

    content: of an XMP file; None makes a new packet. name: of its file, for messages.
    properties: the known ones, as they were read.

    Raises `UserError` for what is no packet of XMP, and for a known property that is neither a
    text nor an array of texts, or has comments: it would be lost.
    """

    def __init__(self, content: bytes | None, name: str) -> None:
        from lxml import etree

        self.is_new = content is None
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
            raise UserError(f"{name} has several rdf:RDF and was left alone")
        self._rdf = roots[0]
        self.properties: dict[str, Sequence[Entry]] = {}
        for part in self._rdf.iterchildren("*"):
            values: list[tuple[str, list[Entry] | None]]
            values = [(_short(long), [("", value)]) for long, value in part.attrib.items()]
            children = part.iterchildren("*")
            values += [(_short(each.tag), _entries(each)) for each in children]
            for short, entries in values:
                if _is_known(short):
                    if entries is None or short in self.properties:
                        form = f"{name} has {short} in an unknown form"
                        raise UserError(f"{form} and was left alone")
                    self.properties[short] = [entry for entry in entries if entry[1]]

    @property
    def is_empty(self) -> bool:
        """Whether it has neither properties nor comments nor text."""
        namespaces = {"rdf": _NAMESPACES["rdf"], "x": "adobe:ns:meta/"}
        return not self._tree.xpath(_MORE, namespaces=namespaces)

    @property
    def content(self) -> bytes:
        """The packet as a file, indented."""
        from lxml import etree

        etree.indent(self._tree, space=" ")
        return bytes(etree.tostring(self._tree, encoding="UTF-8"))

    def update(self, new: Properties) -> bool:
        """Write the values that differ from `properties`; returns whether there are any."""
        names = [
            name
            for name in {**self.properties, **new}
            if _is_known(name) and {*new.get(name, ())} != {*self.properties.get(name, ())}
        ]
        for name in names:
            for part in self._rdf.iterchildren("*"):
                part.attrib.pop(_long(name), None)
                for element in part.findall(_long(name)):
                    part.remove(element)
            if new.get(name):
                self._append(name, new[name])
        return bool(names)

    def _append(self, name: str, entries: Sequence[Entry]) -> None:
        """Add a property; captioner's are lists, as some programs turn texts into attributes."""
        from lxml import etree

        part = self._rdf.find("*")
        if part is None:
            part = etree.SubElement(self._rdf, f"{_RDF}Description", {f"{_RDF}about": ""})
        prefix = name.split(":")[0]
        element = etree.SubElement(part, _long(name), nsmap={prefix: _NAMESPACES[prefix]})
        kind = "Alt" if name in XMP_DESCRIBING else "Seq" if "before" in name else "Bag"
        array = element if name == EXTENSION else etree.SubElement(element, f"{_RDF}{kind}")
        for language, text in entries:
            item = element if name == EXTENSION else etree.SubElement(array, f"{_RDF}li")
            item.text = _NO_XML.sub("", text)
            if language:
                item.set(_LANGUAGE, language)


def _is_known(name: str) -> bool:
    return name in (*XMP_DESCRIBING, SUBJECT, EXTENSION) or name.startswith("captioner:")


def _short(name: str) -> str:
    """A name with the usual prefix of its namespace, `dc:subject`."""
    uri, _, local = name.rpartition("}")
    return f"{_PREFIXES.get(uri[1:])}:{local}"


def _long(name: str) -> str:
    prefix, local = name.split(":")
    return f"{{{_NAMESPACES[prefix]}}}{local}"


def _entries(element: "_Element") -> list[Entry] | None:
    """The items of an array of texts, or a text; None of anything else, or with comments."""
    array = element[0] if len(element) == 1 and element[0].tag in _ARRAYS else None
    if array is None:
        return _texts([element])
    loose = [element.text, array.text, array.tail, *(item.tail for item in array)]
    is_odd = "".join(filter(None, loose)).strip() or element.attrib or array.attrib
    is_odd = is_odd or any(item.tag != f"{_RDF}li" for item in array)
    return None if is_odd else _texts([*array])


def _texts(items: Sequence["_Element"]) -> list[Entry] | None:
    """The texts of elements with their languages; None if one has anything else in it."""
    if any(len(item) or {*item.attrib} - {_LANGUAGE} for item in items):
        return None
    return [(item.get(_LANGUAGE, ""), (item.text or "").strip()) for item in items]
