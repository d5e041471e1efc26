"""Writes captions into files beside the photos: XMP sidecars and plain text.

XMP: Adobe, *XMP Specification Part 1* (ISO 16684-1) for the properties, Part 3 for sidecars.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from captioner import __version__
from captioner.caption import Caption
from captioner.cli.report import on_a_line
from captioner.demo import DEMO_PHOTO
from captioner.errors import UserError
from captioner.files import read_text, real_path, refuse_os_errors, write_bytes, write_text
from captioner.text.languages import nouns

_NAMESPACES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "dc": "http://purl.org/dc/elements/1.1/",
    "xmp": "http://ns.adobe.com/xap/1.0/",
    "captioner": "captioner:ns/1.0/",
}
_RDF, _DC, _XMP, _OWN = (f"{{{uri}}}" for uri in _NAMESPACES.values())
"""Prefixes of names. `_OWN` holds copies of what captioner wrote, to know it again."""
_ITEM = f"{_RDF}li"

_WITHOUT_SIDECAR = {
    "-": "the photo given to - is none",
    str(DEMO_PHOTO): "that of --demo is the package's",
}
"""Photos beside which nothing is written, and why."""

_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"

_EMPTY = b"""\
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:dc="http://purl.org/dc/elements/1.1/"
    xmlns:xmp="http://ns.adobe.com/xap/1.0/" xmlns:captioner="captioner:ns/1.0/">
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>"""


@dataclass(frozen=True)
class Sidecars:
    """The files to write beside each photo.

    xmp: the program that reads them and sets the name: "lightroom" (`photo.xmp`), "digikam" or
        "darktable" (`photo.jpg.xmp`). text: write `photo.txt`.
    overwrite: replace descriptions and texts that captioner did not write.
    """

    xmp: str | None = None
    text: bool = False
    overwrite: bool = False

    def paths(self, photo: str) -> Iterator[tuple[str, Path]]:
        """The files beside a photo, with their options."""
        path = Path(photo)
        if self.xmp == "lightroom":
            yield "xmp", path.with_suffix(".xmp")
        elif self.xmp:
            yield "xmp", path.with_name(f"{path.name}.xmp")
        if self.text:
            yield "text", path.with_suffix(".txt")

    def check(self, photos: Sequence[str]) -> None:
        """Raise `UserError` if two photos share a file, or there should be none beside one."""
        if self.xmp or self.text:
            for photo, reason in _WITHOUT_SIDECAR.items():
                if photo in photos:
                    raise UserError(f"--xmp and --text write beside a file; {reason}")
        owners: dict[str, str] = {}
        for photo in photos:
            for option, path in self.paths(photo):
                owner = owners.setdefault(real_path(path), photo)
                if real_path(owner) != real_path(photo):
                    naming = ", or --xmp-for digikam" if option == "xmp" else ""
                    raise UserError(
                        f"--{option} would write {path} for both {owner} and {photo}; caption "
                        f"them apart{naming}"
                    )

    def write(self, option: str, path: Path, caption: Caption) -> None:
        """Write one of `paths`."""
        if option == "text":
            write_caption_text(path, caption.text, self.overwrite)
        else:
            keywords = nouns((caption.original or caption).words)  # `nouns` knows English only.
            write_xmp(path, caption.text, keywords, caption.language or "en", self.overwrite)


def write_caption_text(path: Path, caption: str, overwrite: bool = False) -> None:
    """Write the caption as a line of text."""
    line = f"{on_a_line(caption)}\n"
    if path.exists() and not overwrite and read_text(path) != line:
        raise UserError(f"{path} holds another text; --overwrite replaces it")
    write_text(path, line)


def write_xmp(
    path: Path,
    caption: str,
    keywords: Sequence[str],
    language: str = "en",
    overwrite: bool = False,
) -> None:
    """Write the caption as `dc:description` and the keywords as `dc:subject`.

    A file that exists is merged: what captioner wrote before is replaced, all else is kept. It
    becomes the creator tool if there is no other.

    language: of the caption, a tag such as "en"; the caption is the default for all languages.
    overwrite: replace a description that captioner did not write.
    Raises `UserError`, and leaves the file alone, if it is not an XMP file or has such a
    description.
    """
    rdf = _read(path)
    caption = on_a_line(caption)
    own_captions = _items(rdf, f"{_OWN}description", "Bag")
    own_texts = {item.text for item in own_captions.findall(_ITEM)}
    descriptions = _items(rdf, f"{_DC}description", "Alt")
    for item in descriptions.findall(_ITEM):
        if item.get(_LANGUAGE, "x-default").lower() not in ("x-default", language):
            continue
        text = (item.text or "").strip()
        if not overwrite and text not in ("", caption, *own_texts):
            raise UserError(
                f"{path} has a description that captioner did not write; --overwrite replaces it"
            )
        descriptions.remove(item)
    for place, tag in enumerate(("x-default", language)):
        item = etree.Element(_ITEM, {_LANGUAGE: tag})
        item.text = caption
        descriptions.insert(place, item)
    own_captions.clear()
    for text in dict.fromkeys(item.text for item in descriptions.findall(_ITEM)):
        if text in {caption, *own_texts}:
            etree.SubElement(own_captions, _ITEM).text = text

    own_subjects = _items(rdf, f"{_OWN}subject", "Bag")
    subjects = _items(rdf, f"{_DC}subject", "Bag")
    own = {item.text for item in own_subjects.findall(_ITEM)}
    own_subjects.clear()
    for item in subjects.findall(_ITEM):
        if item.text in own:
            subjects.remove(item)
    others = {item.text for item in subjects.findall(_ITEM)}
    for word in keywords:
        if word not in others:
            for bag in (own_subjects, subjects):
                etree.SubElement(bag, _ITEM).text = word

    creator = _property(rdf, f"{_XMP}CreatorTool")
    if not creator.text or creator.text.startswith("captioner "):
        creator.text = f"captioner {__version__}"
    document = rdf.getroottree()
    etree.indent(document, space=" ")
    write_bytes(path, etree.tostring(document, encoding="UTF-8", xml_declaration=True))


def _read(path: Path) -> etree._Element:
    """The `rdf:RDF` element of an XMP file, or of an empty one if the file does not exist."""
    with refuse_os_errors(f"cannot read {path}"):
        content = path.read_bytes() if os.path.lexists(path) else _EMPTY
    try:
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        root = etree.fromstring(content, parser)
    except etree.XMLSyntaxError as error:
        raise UserError(f"{path} is not valid XML ({error.msg}) and was left alone") from None
    if root.getroottree().docinfo.doctype:
        raise UserError(f"{path} declares a document type, unlike XMP files, and was left alone")
    rdf = next(root.iter(f"{_RDF}RDF"), None)
    if rdf is None:
        raise UserError(f"{path} is XML without an XMP packet and was left alone")
    return rdf


def _property(rdf: etree._Element, name: str) -> etree._Element:
    """The element of a property; made if missing, also from its form as an attribute."""
    for description in rdf.findall(f"{_RDF}Description"):
        found = description.find(name)
        if found is not None:
            return found
        if name in description.attrib:
            found = etree.SubElement(description, name)
            found.text = description.attrib.pop(name)
            return found
    description = rdf.find(f"{_RDF}Description")
    if description is None:
        description = etree.SubElement(rdf, f"{_RDF}Description", {f"{_RDF}about": ""})
    made = etree.SubElement(description, name, nsmap=_NAMESPACES)
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
