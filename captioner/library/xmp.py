"""Packets of XMP: parsed to plain values, and written by replacing the bytes that change.

XMP (Adobe, *Specification Part 1*, ISO 16684-1). All else in a packet stays, byte for byte.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from captioner.errors import CONTROLS, UserError

NAMESPACES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
    "tiff": "http://ns.adobe.com/tiff/1.0/",
    "exif": "http://ns.adobe.com/exif/1.0/",
    "photoshop": "http://ns.adobe.com/photoshop/1.0/",
    "Iptc4xmpCore": "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
    "captioner": "captioner:ns/1.0/",
    "xml": "http://www.w3.org/XML/1998/namespace",
    "x": "adobe:ns:meta/",
}
_PREFIXES = {uri: prefix for prefix, uri in NAMESPACES.items()}

Entry = tuple[str, str]
"""The language, or "", and the text of an item of an array, or of a plain value."""
Properties = Mapping[str, Sequence[Entry]]
"""The values of a packet that captioner reads and writes, by name, such as `dc:subject`."""

ALT_TEXT = "Iptc4xmpCore:AltTextAccessibility"
EXIF_COPIES = ("tiff:ImageDescription", "exif:UserComment")
XMP_DESCRIBING = ("dc:description", *EXIF_COPIES, ALT_TEXT, "Iptc4xmpCore:ExtDescrAccessibility")
SUBJECT, EXTENSION = "dc:subject", "photoshop:SidecarForExtension"
_SHELL = {"x:xmpmeta", "rdf:RDF", "rdf:Description", "rdf:about", "about", EXTENSION}

_NEW = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
""".encode()
_TAG = re.compile(rb"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
_NO_XML = re.compile(f"{CONTROLS.pattern}|[\ufffe\uffff\ud800-\udfff]")
_DEPTH = 50


@dataclass(eq=False)
class _Element:
    """An element. start, opened, closing, end: where its opening and closing tags start and end."""

    name: str
    attributes: Mapping[str, str]
    start: int
    opened: int
    closing: int = 0
    end: int = 0
    children: list["_Element"] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def words(self) -> str:
        """Its text, and that of attributes, also of nested elements."""
        hidden = ("xml:lang", "rdf:parseType", "rdf:about")
        values = (
            value
            for element in [self, *self.within()]
            for name, value in element.attributes.items()
            if name not in hidden
        )
        return " ".join(filter(None, map(str.strip, ["".join(self.pieces), *values])))

    @property
    def is_plain(self) -> bool:
        """Whether it holds text alone, of a language."""
        return not self.children and self.attributes.keys() <= {"xml:lang"}

    def within(self) -> Iterator["_Element"]:
        """The nested elements, in their order."""
        for child in self.children:
            yield child
            yield from child.within()

    def entries(self) -> list[Entry] | None:
        """The items of an array of texts, or a text; None for anything else."""
        items = [self] if self.words else []
        if not self.is_plain:
            array = self.children[0] if len(self.children) == 1 else self
            is_array = array.name in ("rdf:Alt", "rdf:Bag", "rdf:Seq")
            are_plain = all(item.name == "rdf:li" and item.is_plain for item in array.children)
            if self.attributes or array.attributes or not (is_array and are_plain):
                return None
            items = array.children
        return [item.entry for item in items]

    @property
    def entry(self) -> Entry:
        """Its language and its words."""
        return self.attributes.get("xml:lang", ""), self.words


class Packet:
    """A packet as plain values, and where they stand in it.

    content: of an XMP file; None makes a new packet. name: of its file, for messages.
    properties: the known ones. odd: those that are neither one text nor one array of texts, which
        are read as texts and not written.
    """

    def __init__(self, content: bytes | None, name: str) -> None:
        self.content = _NEW if content is None else content
        self.is_new, self.name = content is None, name
        self.properties: dict[str, Sequence[Entry]] = {}
        self.odd: set[str] = set()
        self._has_comments = False
        self._places: dict[str, _Element] = {}
        document = self._parsed()
        elements = [*document.within()]
        self._roots = [element for element in elements if element.name == "rdf:RDF"]
        if not self._roots or b"\0" in self.content:
            raise UserError(f"{name} is not XMP in UTF-8, and was left alone")
        self.is_several = len(self._roots) > 1
        self._parts = [part for root in self._roots for part in root.children]
        names = {name for element in elements for name in (element.name, *element.attributes)}
        names -= {name for name in names if name.startswith("x:")}
        is_blank = not "".join(document.pieces).strip()
        self._is_shell = names <= _SHELL and (is_blank or EXTENSION in names)
        for part in self._parts:
            for attribute, value in part.attributes.items():
                self._add(attribute, part, [("", value)])
            for element in part.children:
                self._add(element.name, element, element.entries())

    @property
    def is_empty(self) -> bool:
        """Whether it has neither properties nor comments."""
        return self._is_shell and not (self.is_several or self._has_comments)

    def replaced(self, new: Properties) -> bytes:
        """The content with other properties. Raises `UserError` if the packet has two `rdf:RDF`."""
        wanted = {
            name: _ordered(self.properties.get(name, ()), new.get(name, ()))
            for name in {**self.properties, **new}
            if name not in self.odd and not name.startswith("iptc:")
        }
        changed = [name for name in wanted if wanted[name] != self.properties.get(name, [])]
        if changed and self.is_several:
            raise UserError(f"{self.name} has several rdf:RDF and was left alone")
        edits: list[tuple[int, int, str]] = []
        added: dict[str, Sequence[Entry]] = {}
        removed: list[_Element] = []
        for name in changed:
            place = self._places.get(name)
            if place and place.children and place.children[0].children and wanted[name]:
                edits += self._edits_of_array(place.children[0], wanted[name])
                continue
            removed += [place] if place else []
            added |= {name: wanted[name]} if wanted[name] else {}
        for part in self._parts:
            gone = [child for child in part.children if child in removed]
            is_all = len(gone) == len(part.children) and part.attributes.keys() <= {"rdf:about"}
            for element in [part] if gone and is_all else gone:
                edits.append((self._behind_space(element.start), element.end, ""))
        edits += [self._addition(added)] if added else []
        parts, start = [], 0
        for first, end, text in sorted(edits):
            parts += [self.content[start:first], text.encode()]
            start = end
        return b"".join([*parts, self.content[start:]])

    def _parsed(self) -> _Element:
        """The document as an element."""
        parser = expat.ParserCreate("utf-8", namespace_separator=" ")
        parser.buffer_text = True
        open_ = [document := _Element("", {}, 0, 0)]

        def start(name: str, attributes: Mapping[str, str]) -> None:
            tag = _TAG.match(self.content, parser.CurrentByteIndex)
            if tag is None or len(open_) > _DEPTH:
                raise UserError(f"{self.name} is not in UTF-8, or too deep, and was left alone")
            named = {_short(attribute): value for attribute, value in attributes.items()}
            open_[-1].children.append(element := _Element(_short(name), named, *tag.span()))
            open_.append(element)

        def close(_: str) -> None:
            element = open_.pop()
            element.closing = parser.CurrentByteIndex
            is_single = self.content[element.opened - 2 : element.opened] == b"/>"
            end = self.content.find(b">", element.closing) + 1
            element.end = element.opened if is_single else end

        def text(data: str) -> None:
            for element in open_:
                element.pieces.append(data)

        def doctype(*_: object) -> None:
            raise UserError(f"{self.name} declares a document type and was left alone")

        def comment(_: str) -> None:
            self._has_comments = True

        parser.StartElementHandler, parser.EndElementHandler = start, close
        parser.StartDoctypeDeclHandler, parser.CharacterDataHandler = doctype, text
        parser.CommentHandler = comment
        try:
            parser.Parse(self.content, True)
        except expat.ExpatError as error:
            raise UserError(f"{self.name} is not valid XML ({error}) and was left alone") from None
        return document

    def _add(self, name: str, place: _Element, entries: list[Entry] | None) -> None:
        """Take a property's value. entries: None if it is neither a text nor an array."""
        if name not in (*XMP_DESCRIBING, SUBJECT, EXTENSION) and not name.startswith("captioner:"):
            return
        if entries is None or name in self.properties or place.name != name:
            self.odd.add(name)
        if entries is None:
            items = [item for item in place.within() if item.name == "rdf:li"]
            entries = [item.entry for item in items or [place]]
        self.properties[name] = [*self.properties.get(name, ()), *entries]
        self._places[name] = place

    def _edits_of_array(
        self, array: _Element, entries: Sequence[Entry]
    ) -> Iterator[tuple[int, int, str]]:
        """Takes items out of an array, and adds others: in their places, where there is one."""
        tag = self.content[array.start + 1 : array.opened - 1].split()[0].decode()
        tag = f"{tag[: tag.find(':') + 1]}li"
        there, wanted = {item.entry for item in array.children}, set(entries)
        added = [_item(*entry, tag) for entry in entries if entry not in there][::-1]
        for item in array.children:
            if item.entry not in wanted:
                start = item.start if added else self._behind_space(item.start)
                yield start, item.end, added.pop() if added else ""
        last, end = array.children[-1].start, self._behind_space(array.closing)
        space = self.content[self._behind_space(last) : last].decode()
        yield end, end, "".join(f"{space}{item}" for item in added[::-1])

    def _addition(self, added: Properties) -> tuple[int, int, str]:
        """Adds a `rdf:Description` with properties at the end of `rdf:RDF`."""
        root = self._roots[0]
        about = self._parts[0].attributes.get("rdf:about", "") if self._parts else ""
        prefixes = dict.fromkeys(["rdf", *(name.split(":")[0] for name in added)])
        spaces = (f"\n    xmlns:{prefix}={quoteattr(NAMESPACES[prefix])}" for prefix in prefixes)
        values = (f"\n   {_property(name, entries)}" for name, entries in added.items())
        opening = f"\n  <rdf:Description rdf:about={quoteattr(about)}{''.join(spaces)}>"
        text = f"{opening}{''.join(values)}\n  </rdf:Description>"
        if root.end > root.opened:
            place = self._behind_space(root.closing)
            return place, place, text
        tag = self.content[root.start : root.opened - 2].decode()  # <rdf:RDF/>
        return root.start, root.end, f"{tag}>{text}\n</{tag.split()[0][1:]}>"

    def _behind_space(self, place: int) -> int:
        """Where the blanks before a place start."""
        return len(self.content[:place].rstrip())


def _short(name: str) -> str:
    """A name with the usual prefix of its namespace."""
    uri, _, local = name.rpartition(" ")
    return f"{_PREFIXES.get(uri, uri)}:{local}" if uri else local


def _ordered(before: Sequence[Entry], entries: Iterable[Entry]) -> list[Entry]:
    """The entries, in the order before."""
    wanted, had = dict.fromkeys(entries), set(before)
    kept = [entry for entry in before if entry in wanted]
    return kept + [entry for entry in wanted if entry not in had]


def _item(language: str, text: str, tag: str = "rdf:li") -> str:
    opening = f"{tag} xml:lang={quoteattr(language)}" if language else tag
    clean = escape(_NO_XML.sub("", text))
    return f"<{opening}>{clean}</{tag}>" if text else f"<{opening}/>"


def _property(name: str, entries: Sequence[Entry]) -> str:
    """A property as an element; captioner's are lists: some programs turn texts to attributes."""
    if name == EXTENSION:
        return _item(*entries[0], name)
    kind = "Alt" if name in XMP_DESCRIBING else "Seq" if "before" in name else "Bag"
    items = "".join(_item(*entry) for entry in entries)
    return f"<{name}><rdf:{kind}>{items}</rdf:{kind}></{name}>"
