"""Writes captions into files beside the photos: XMP sidecars and plain text.

Adobe, *XMP Specification Part 3* for the names of sidecars.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from captioner.cli.program import on_a_line
from captioner.data.xmp import Description, XmpPacket
from captioner.errors import UserError
from captioner.files import read_text, real_path, refuse_os_errors, write_bytes, write_text


def sidecar_paths(photo: str, xmp: str | None, text: bool) -> Iterator[tuple[str, Path]]:
    """The files beside a photo, with their options.

    xmp: the program that reads them and sets the name: "lightroom" (`photo.xmp`, unless there is a
        `photo.jpg.xmp` alone), "digikam" or "darktable" (`photo.jpg.xmp`). text: write `photo.txt`.
    """
    path = Path(photo)
    with_suffix, without = path.with_name(f"{path.name}.xmp"), path.with_suffix(".xmp")
    if xmp == "lightroom" and (without.exists() or not with_suffix.exists()):
        yield "xmp", without
    elif xmp:
        yield "xmp", with_suffix
    if text:
        yield "text", path.with_suffix(".txt")


def shared_sidecars(photos: Iterable[str], xmp: str | None, text: bool) -> dict[Path, str]:
    """The files that would be beside several photos at once, with a sentence about each."""
    owners: dict[Path, dict[str, str]] = defaultdict(dict)
    for photo in photos:
        for _, path in sidecar_paths(photo, xmp, text):
            owners[path].setdefault(real_path(photo), photo)
    return {
        path: f"{path} would be of {' and of '.join(of.values())}, and is not written; rename one"
        + (", or give --xmp-for digikam" if path.suffix == ".xmp" else "")
        for path, of in owners.items()
        if len(of) > 1
    }


def write_caption_text(path: Path, caption: str, overwrite: bool = False) -> None:
    """Write the caption as a line of text."""
    line = f"{on_a_line(caption)}\n"
    if path.exists() and not overwrite and read_text(path) != line:
        raise UserError(f"{path} holds another text; --overwrite replaces it")
    write_text(path, line)


def write_xmp(path: Path, description: Description, overwrite: bool = False) -> bool:
    """Write the description into an XMP file, merged with what is there.

    overwrite: replace a description that captioner did not write.
    Returns whether the description was set; False if one by somebody else stays.
    Raises `UserError`, and leaves the file alone, if it is no XMP.
    """
    with refuse_os_errors(f"cannot read {path}"):
        content = path.read_bytes() if os.path.lexists(path) else None
    packet = XmpPacket(content, str(path))
    is_set = packet.merge(description, overwrite)
    write_bytes(path, packet.as_file())
    return is_set
