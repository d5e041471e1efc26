"""Writes captions into files beside the photos: XMP sidecars and plain text.

XMP: Adobe, *XMP Specification Part 1* (ISO 16684-1) for the properties, Part 3 for sidecars.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from lxml import etree

from captioner import __version__
from captioner.cli.program import on_a_line
from captioner.demo import DEMO_PHOTO
from captioner.errors import UserError
from captioner.files import read_text, real_path, refuse_os_errors, write_bytes, write_text

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


def sidecar_paths(photo: str, xmp: str | None, text: bool) -> Iterator[tuple[str, Path]]:
    """The files beside a photo, with their options.

    xmp: the program that reads them and sets the name: "lightroom" (`photo.xmp`), "digikam" or
        "darktable" (`photo.jpg.xmp`). text: write `photo.txt`.
    """
    path = Path(photo)
    if xmp == "lightroom":
        yield "xmp", path.with_suffix(".xmp")
    elif xmp:
        yield "xmp", path.with_name(f"{path.name}.xmp")
    if text:
        yield "text", path.with_suffix(".txt")


def check_sidecars(photos: Sequence[str], xmp: str | None, text: bool) -> None:
    """Raise `UserError` if two photos share a file, or there should be none beside one."""
    owners: dict[str, str] = {}
    for photo in photos:
        for option, path in sidecar_paths(photo, xmp, text):
            if photo in ("-", str(DEMO_PHOTO)):
                raise UserError(f"--{option} writes beside a file of yours; - and --demo are none")
            owner = owners.setdefault(real_path(path), photo)
            if real_path(owner) != real_path(photo):
                raise UserError(
                    f"--{option} would write {path} for both {owner} and {photo}; caption them "
                    "apart, or with --xmp-for digikam"
                )


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
    Raises `UserError`, and leaves the file alone, if it has such a description or is no XMP.
    """
    rdf = _read(path)
    if not _describe(rdf, on_a_line(caption), language, overwrite):
        raise UserError(
            f"{path} has a description that captioner did not write; --overwrite replaces it"
        )
    _set_keywords(rdf, keywords)
    creator = _property(rdf, f"{_XMP}CreatorTool")
    if not creator.text or creator.text.startswith("captioner "):
        creator.text = f"captioner {__version__}"
    document = rdf.getroottree()
    etree.indent(document, space=" ")
    write_bytes(path, etree.tostring(document, encoding="UTF-8", xml_declaration=True))


def _describe(rdf: etree._Element, caption: str, language: str, overwrite: bool) -> bool:
    """Set the description; False if there is one by somebody else that is not to be replaced."""
    own = _items(rdf, f"{_OWN}description", "Bag")
    own_texts = {item.text for item in own.findall(_ITEM)}
    descriptions = _items(rdf, f"{_DC}description", "Alt")
    for item in descriptions.findall(_ITEM):
        if item.get(_LANGUAGE, "x-default").lower() not in ("x-default", language):
            continue
        if not overwrite and (item.text or "").strip() not in ("", caption, *own_texts):
            return False
        descriptions.remove(item)
    for place, tag in enumerate(("x-default", language)):
        item = etree.Element(_ITEM, {_LANGUAGE: tag})
        item.text = caption
        descriptions.insert(place, item)
    own.clear()
    for text in dict.fromkeys(item.text for item in descriptions.findall(_ITEM)):
        if text in {caption, *own_texts}:
            etree.SubElement(own, _ITEM).text = text
    return True


def _set_keywords(rdf: etree._Element, keywords: Sequence[str]) -> None:
    """Replace the keywords that captioner wrote; those of the user stay."""
    own = _items(rdf, f"{_OWN}subject", "Bag")
    own_texts = {item.text for item in own.findall(_ITEM)}
    own.clear()
    subjects = _items(rdf, f"{_DC}subject", "Bag")
    for item in subjects.findall(_ITEM):
        if item.text in own_texts:
            subjects.remove(item)
    others = {item.text for item in subjects.findall(_ITEM)}
    for word in keywords:
        if word not in others:
            for bag in (own, subjects):
                etree.SubElement(bag, _ITEM).text = word


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
