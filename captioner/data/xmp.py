"""Packets of XMP: who wrote their descriptions; captions and keywords in them.

XMP (Adobe, *Specification Part 1*, ISO 16684-1).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from lxml import etree

from captioner.data.inside_photos import by_people
from captioner.errors import CONTROLS, UserError

_NAMESPACES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
    "captioner": "captioner:ns/1.0/",
    "photoshop": "http://ns.adobe.com/photoshop/1.0/",
    "Iptc4xmpCore": "http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/",
}
_RDF, _DC, _OWN, _PHOTOSHOP, _IPTC = (f"{{{uri}}}" for uri in _NAMESPACES.values())
# `captioner` holds copies of what captioner wrote, to know it again, and of what it replaced.
_ITEM = f"{_RDF}li"

_EXIF = "{http://ns.adobe.com/"
_EXIF_COPIES = (f"{_EXIF}tiff/1.0/}}ImageDescription", f"{_EXIF}exif/1.0/}}UserComment")
_WRITTEN = (f"{_DC}description", f"{_IPTC}AltTextAccessibility")
# Properties that describe a photo; programs show the first before the others.
_DESCRIBING = (_WRITTEN[0], *_EXIF_COPIES, _WRITTEN[1], f"{_IPTC}ExtDescrAccessibility")

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
_STRING = etree.XPath("string()")  # Compiled once: a photo asks for 28.
_NO_TEXT = (_LANGUAGE, f"{_RDF}parseType", f"{_RDF}about")
_EMPTY = b"""<x:xmpmeta xmlns:x="adobe:ns:meta/">
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/></x:xmpmeta>"""

_BLOCK = b"""<?xpacket begin="\xef\xbb\xbf" id="W5M0MpCehiHzreSzNTczkc9d"?>
%b
<?xpacket end="w"?>"""


@dataclass(frozen=True)
class Description:
    """A caption on one line, its language tag and its confidence, and keywords.

    by_person: whether a person wrote the caption: it is marked so, and no machine's replaces it.
    keywords_only: whether a person describes the photo, here or elsewhere: only keywords are
        written, and the description that captioner wrote is withdrawn.
    overwrite: whether it replaces the words of a person, or comes back where one took it out.
    undo: whether all that captioner wrote is taken out, and the words that it replaced come back.
    """

    caption: str
    keywords: Sequence[str]
    language: str = "en"
    confidence: float | None = None
    by_person: bool = False
    keywords_only: bool = False
    overwrite: bool = False
    undo: bool = False


class Merged(NamedTuple):
    """What merging a description did.

    keywords: that are captioner's now. replaced: words of a person, of which the packet has a copy.
        By an undo, both are captioner's words that it took out.
    is_taken_out: a person took captioner's description out: it is not written again.
    is_there: all is in the photo already.
    """

    keywords: Sequence[str] = ()
    replaced: Sequence[str] = ()
    is_taken_out: bool = False
    is_there: bool = False


class XmpPacket:
    """An XMP packet; merging replaces what captioner wrote before and keeps all else.

    content: of an XMP file; None makes a new packet. name: of its file, for messages.
    """

    def __init__(self, content: bytes | None, name: str) -> None:
        try:
            parser = etree.XMLParser(resolve_entities=False, no_network=True)
            root = etree.fromstring(_EMPTY if content is None else content, parser)
        except etree.XMLSyntaxError as error:
            raise UserError(f"{name} is not valid XML ({error.msg}) and was left alone") from None
        self._rdf: etree._Element = next(root.iter(f"{_RDF}RDF"), None)
        if self._rdf is None or root.getroottree().docinfo.doctype:
            raise UserError(f"{name} is not XMP, or declares a document type, and was left alone")

    @property
    def descriptions(self) -> list[str]:
        """All texts that describe the photo, in any language and form; the default stands first.

        Those that cameras write are left out.
        """
        parts = [*self._rdf.getroottree().iterfind(f".//{_RDF}RDF/*")]
        found: list[str] = []
        for name, part in product(_DESCRIBING, parts):
            texts = [part.get(name, "").strip()]
            for element in part.iterchildren(name):
                items = sorted(element.iter(_ITEM), key=lambda item: _language(item) != "x-default")
                texts += map(_text, items or [element])
            found += by_people(texts, is_exif=name in _EXIF_COPIES)
        return [*dict.fromkeys(found)]

    @property
    def is_empty(self) -> bool:
        """Whether it has no property, but for that of `set_extension`."""
        parts = self._rdf.findall("*")
        names = {name for part in parts for name in (*part.attrib, *(item.tag for item in part))}
        return names <= {f"{_RDF}about", "about", f"{_PHOTOSHOP}SidecarForExtension"}

    def own_texts(self, name: str, by_person: bool = False) -> list[str]:
        """The texts that captioner wrote as `description`, or as `subject`, which is keywords.

        by_person: also descriptions by a person, which it wrote from a table.
        """
        is_left_out = name == "description" and not by_person and self._is_by_person()
        array = self._items(_OWN + name)
        texts = [] if is_left_out else _texts(array)
        _remove_if_empty(array.getparent())
        return texts

    def merge(self, description: Description, iptc_keywords: Sequence[str] = ()) -> Merged:
        """Set `dc:description` for all languages, the same alt text, and `dc:subject`.

        What captioner wrote and a person took out is not written again: keywords one by one, the
        description unless it overwrites. Words of a person, wherever they describe the photo, are
        replaced; see `_describe`.

        iptc_keywords: beside the packet in a photo.
        """
        if description.undo:
            return self._undo()
        if self._is_by_person() and not (description.by_person or description.overwrite):
            return Merged(self.own_texts("subject"))
        replaced: list[str] = []
        is_taken_out = not description.overwrite and self._is_taken_out()
        if not is_taken_out and (description.keywords_only or description.by_person):
            self._withdraw()
        if not is_taken_out and not description.keywords_only:
            replaced = self._describe(description)
        keywords = self._set_keywords(description.keywords, iptc_keywords)
        confidence = self._property(f"{_OWN}confidence")
        is_sure = description.confidence is not None
        is_described = description.keywords_only or is_taken_out
        confidence.text = f"{description.confidence:.2f}" if is_sure and not is_described else ""
        _remove_if_empty(confidence)
        return Merged(keywords, replaced, is_taken_out)

    def set_extension(self, suffix: str) -> None:
        """Set the suffix of the file that a sidecar is of; "" removes it."""
        extension = self._property(f"{_PHOTOSHOP}SidecarForExtension")
        extension.text = suffix
        _remove_if_empty(extension)

    def is_own(self) -> bool:
        """Whether captioner wrote all that is there, by no person, which is taken out."""
        is_by_person = self._is_by_person()
        self._undo()
        return self.is_empty and not is_by_person

    def keep_copy(self, place: str, text: str) -> None:
        """Keep words that are replaced in IPTC, without control characters. place: their tag."""
        copies = self._items(f"{_OWN}before_{place}", "Seq")
        _add(copies, {CONTROLS.sub("", text)}.difference(_texts(copies)))

    def as_file(self) -> bytes:
        """The packet as the content of an XMP file."""
        document = self._rdf.getroottree()
        etree.indent(document, space=" ")
        return bytes(etree.tostring(document, encoding="UTF-8", xml_declaration=True))

    def as_block(self) -> bytes:
        """The packet as photos hold it."""
        root = self._rdf.getroottree().getroot()
        return _BLOCK % bytes(etree.tostring(root, encoding="UTF-8", with_tail=False))

    def _is_by_person(self) -> bool:
        """Whether the description that captioner wrote is a person's."""
        return self._rdf.find(f".//{_OWN}by/*") is not None

    def _undo(self) -> Merged:
        """Take out and return what captioner wrote; the words that it replaced come back."""
        keywords = self._take_out(f"{_DC}subject")
        taken_out = self._take_out(*_DESCRIBING, is_undo=True)
        etree.strip_attributes(self._rdf, f"{_OWN}*")
        etree.strip_elements(self._rdf, f"{_OWN}*", with_tail=False)
        return Merged(keywords, taken_out)

    def _take_out(self, *names: str, is_undo: bool = False) -> list[str]:
        """Remove from properties what captioner wrote; in an undo, the last copies come back."""
        taken_out = []
        own_texts = self.own_texts("description", by_person=True)
        for element in [*self._rdf.iter(*names)]:
            name = etree.QName(element).localname
            own_words = {*own_texts, *self.own_texts(name, by_person=True)}
            own_items = [item for item in element.iter(_ITEM) if _text(item) in own_words]
            for item in own_items:
                taken_out.append(_text(item))
                array = item.getparent()
                array.remove(item)
            if own_items and is_undo:
                copies = self._items(f"{_OWN}before_{name}", "Seq").findall(_ITEM)
                there = {*map(_language, array.findall(_ITEM))}
                last = {_language(copy): copy for copy in copies}
                array.extend(copy for language, copy in last.items() if language not in there)
            _remove_if_empty(element)
        return [*dict.fromkeys(taken_out)]

    def _is_taken_out(self) -> bool:
        """Whether the description that captioner wrote has gone, and no other is the default."""
        if not any(self.own_texts("description", by_person=True)):
            return False
        items = self._items(f"{_DC}description", "Alt")
        defaults = [_text(item) for item in items.findall(_ITEM) if _language(item) == "x-default"]
        _remove_if_empty(items.getparent())
        return not any(defaults)

    def _withdraw(self) -> None:
        """Remove the descriptions that captioner wrote, unless they are a person's."""
        if not self._is_by_person():
            self._take_out(*_DESCRIBING)
            etree.strip_elements(self._rdf, f"{_OWN}description", with_tail=False)

    def _describe(self, description: Description) -> list[str]:
        """Set description and alt text, in place of those in its language or in none.

        Replaces the words of a person in any language and property; returns them. Copies stand in
        `captioner:before_description`, or `before_` and another property's name.
        """
        own_texts = {*self.own_texts("description", description.by_person)}
        own_copies = self._items(f"{_OWN}description")
        words = {*self.descriptions} - own_texts
        languages = ("x-default", description.language)
        replaced = []
        for name in reversed(_DESCRIBING):  # `dc:description` is the last.
            items = self._items(name, "Alt")
            if name not in _WRITTEN and words.union(own_texts).isdisjoint(_texts(items)):
                _remove_if_empty(items.getparent())
                continue
            copies = self._items(f"{_OWN}before_{etree.QName(name).localname}", "Seq")
            kept = {(_language(item), _text(item)) for item in copies}
            for item in items.findall(_ITEM):
                text = _text(item)
                if text in words or _language(item) in map(str.lower, languages):
                    items.remove(item)
                    if text not in {"", *own_texts} and (_language(item), text) not in kept:
                        copies.append(item)
                    replaced.append(text)
            _remove_if_empty(copies.getparent())
            for number, tag in enumerate(languages):
                item = etree.Element(_ITEM, {_LANGUAGE: tag})
                item.text = description.caption
                items.insert(number, item)
        own_texts.add(description.caption)
        own_copies.clear()
        _add(own_copies, (text for text in dict.fromkeys(_texts(items)) if text in own_texts))
        if not description.by_person:
            etree.strip_elements(self._rdf, f"{_OWN}by", with_tail=False)
        elif not self._is_by_person():
            _add(self._items(f"{_OWN}by"), ["person"])
        return [text for text in replaced if text in words - {description.caption}]

    def _set_keywords(self, keywords: Sequence[str], iptc_keywords: Sequence[str]) -> list[str]:
        """Replace the keywords that captioner wrote; those of the user stay.

        The copies keep those that a person took out. Returns those written.
        """
        copies, subjects = self._items(f"{_OWN}subject"), self._items(f"{_DC}subject")
        own_texts = dict.fromkeys(_texts(copies))
        texts = {*_texts(subjects)}
        taken_out = [word for word in own_texts if word not in texts]
        others = texts.union(iptc_keywords).difference(own_texts).union(taken_out)
        by_others = set(map(str.casefold, others))
        written = [word for word in keywords if word.casefold() not in by_others]
        copies.clear()
        _add(copies, taken_out + written)
        for item in subjects.findall(_ITEM):
            if _text(item) in own_texts:
                subjects.remove(item)
        _add(subjects, written)
        for array in (copies, subjects):
            _remove_if_empty(array.getparent())
        return written

    def _property(self, name: str) -> etree._Element:
        """The element of a property; made if missing, also from its form as an attribute."""
        found = self._rdf.find(f"{_RDF}Description/{name}")
        if found is not None:
            return found
        descriptions = self._rdf.findall(f"{_RDF}Description")
        if not descriptions:
            descriptions = [etree.SubElement(self._rdf, f"{_RDF}Description", {f"{_RDF}about": ""})]
        owner = next((owner for owner in descriptions if name in owner.attrib), descriptions[0])
        made = etree.SubElement(owner, name, nsmap=_NAMESPACES)
        made.text = owner.attrib.pop(name, None)
        etree.cleanup_namespaces(made)
        return made

    def _items(self, name: str, kind: str = "Bag") -> etree._Element:
        """The array of a property, a `rdf:Alt` or `rdf:Bag`; a plain value becomes its item."""
        parent = self._property(name)
        for array in parent.iterchildren(*(f"{_RDF}{form}" for form in ("Alt", "Bag", "Seq"))):
            return array
        text = _text(parent)
        parent.clear(keep_tail=True)  # It may be a structure, with attributes.
        array = etree.SubElement(parent, f"{_RDF}{kind}")
        _add(array, [text] if text else [])
        return array


def _texts(array: etree._Element) -> list[str]:
    return [_text(item) for item in array.findall(_ITEM)]


def _text(element: etree._Element) -> str:
    """All text of an element: also after comments, in nested elements, and as attributes."""
    texts = [str(_STRING(element))]
    for inner in element.iter(etree.Element):
        texts += [value for name, value in inner.attrib.items() if name not in _NO_TEXT]
    return " ".join(filter(None, map(str.strip, texts)))


def _remove_if_empty(element: etree._Element) -> None:
    """Remove a property that has no text."""
    if not _text(element):
        element.getparent().remove(element)


def _language(item: etree._Element) -> str:
    return str(item.get(_LANGUAGE, "x-default")).lower()


def _add(array: etree._Element, texts: Iterable[str]) -> None:
    for text in texts:
        etree.SubElement(array, _ITEM).text = text


def is_marked(content: bytes) -> bool:
    """Whether captioner wrote into a packet."""
    return _NAMESPACES["captioner"].encode() in content.replace(b"\0", b"")
