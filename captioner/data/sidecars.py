"""Where the descriptions of a photo are, in sidecars beside it and inside it."""

import mimetypes
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from os.path import isfile, lexists
from pathlib import Path

from captioner.data.inside_photos import read_inside
from captioner.data.xmp import XmpPacket
from captioner.files import refuse_os_errors

_SIDECAR_FOR = re.compile(rb"""SidecarForExtension(?:\s*=\s*["']|>)\s*(\w+)""")

Spellings = Callable[[Path], Mapping[str, Sequence[str]]]
"""The names in a folder, by their form in lower case."""


def spellings(folder: Path) -> Mapping[str, Sequence[str]]:
    """The names in a folder by the form that file systems which ignore case compare."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    with suppress(OSError, ValueError):
        for name in sorted(os.listdir(folder)):
            names[folded(name)].append(name)
    return names


def sidecars(photo: Path, names: Spellings = spellings) -> list[list[Path]]:
    """The places of a photo's sidecars, `photo.xmp` in any case, then `photo.jpg.xmp` in any case.

    The exact name stands first, also if there is no such file. A `photo.xmp` of another file, such
    as a raw one (`photoshop:SidecarForExtension`), is left out.
    names: those of a folder; for many photos, a cache of `spellings`.
    """
    listed = names(photo.parent)
    is_alone = len(listed.get(folded(photo.name), ())) < 2  # Else case tells photos apart.
    places = []
    for exact in (photo.with_suffix(".xmp"), photo.with_name(f"{photo.name}.xmp")):
        alike = map(exact.with_name, listed.get(folded(exact.name), ()))
        found = [path for path in alike if is_alone or path.stem == exact.stem]
        places.append([*dict.fromkeys([exact, *found])])
    return [[path for path in places[0] if not _is_of_other(path, photo)], places[1]]


def read_sidecar(path: Path) -> XmpPacket:
    """The packet of an XMP file; a new one if there is none."""
    with refuse_os_errors(f"cannot read {path}"):
        content = path.read_bytes() if lexists(path) else None
    return XmpPacket(content, str(path))


def photo_descriptions(
    photo: Path, names: Spellings = spellings, by_person: bool = False
) -> Iterator[tuple[str, str, bool]]:
    """Where the descriptions of a photo are, their texts, and whether captioner wrote them.

    The first counts most; those that cameras write are left out. What is not understood is a text.
    names: see `sidecars`. by_person: as in `XmpPacket.own_texts`.
    """
    for sidecar in filter(isfile, chain(*sidecars(photo, names))):
        packet = read_sidecar(sidecar)
        own_texts = packet.own_texts("description", by_person)
        for text in packet.descriptions:
            yield "with an XMP sidecar", text, text in own_texts
    blocks, texts = read_inside(photo)
    packets = [XmpPacket(block, f"the XMP of {photo}") for block in blocks]
    own_texts = [text for packet in packets for text in packet.own_texts("description", by_person)]
    for text in chain(*(packet.descriptions for packet in packets), texts):
        yield "described inside", text, text in own_texts


def words_of_person(photo: Path, names: Spellings = spellings, but_written: bool = False) -> str:
    """The description of a photo by a person; "" if none. but_written: by captioner."""
    described = photo_descriptions(photo, names, by_person=but_written)
    return next((text for _, text, is_own in described if not is_own), "")


def folded(name: str) -> str:
    """A name as file systems that ignore case compare it."""
    return unicodedata.normalize("NFC", name).lower()


def _is_of_other(sidecar: Path, photo: Path) -> bool:
    """Whether a sidecar says that it is of a file with another suffix, such as a raw file."""
    with suppress(OSError, ValueError):
        if found := _SIDECAR_FOR.search(sidecar.read_bytes().replace(b"\0", b"")):
            return _type_of(found[1].decode("latin-1")) != _type_of(photo.suffix[1:])
    return False


def _type_of(suffix: str) -> str:
    return mimetypes.guess_type(f"a.{suffix}")[0] or suffix.lower()
