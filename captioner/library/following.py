"""Sidecars and texts follow photos that were renamed."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from captioner.errors import UserError
from captioner.files import read_bytes
from captioner.library.beside import Beside
from captioner.library.merge import is_own
from captioner.library.xmp import Packet

_MOVING = "{}.moving"
"""Name of a file on its way, as places may swap; after a kill, the next run takes it there."""


def follow(moved: Mapping[str, str]) -> list[str]:
    """Rename the files beside photos with these; returns sentences about what was in the way."""
    beside, said = Beside(), list[str]()
    targets = {
        path: target
        for old, new in moved.items()
        for path, target in _files_of(Path(old), Path(new), beside)
    }
    for path in targets:
        if os.path.isfile(path) and not os.path.lexists(_MOVING.format(path)):
            os.rename(path, _MOVING.format(path))
    for path, target in targets.items():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            said += _make_room(target)
            os.rename(_MOVING.format(path), target)
        except OSError as error:
            said.append(f"{path} could not follow its photo to {target}: {error.strerror}")
    return said


def _files_of(old: Path, new: Path, beside: Beside) -> Iterator[tuple[Path, Path]]:
    """The files beside a photo, and their new names; not those that are another photo's, too."""
    short, long = beside.sidecars(old)
    alone = [] if beside.has_namesake(old) else [*short, beside.text(old)]
    names = {path: new.stem + path.name[len(old.stem) :] for path in alone}
    names |= {path: new.name + path.name[len(old.name) :] for path in long}
    for path, name in names.items():
        is_there = os.path.isfile(path) or os.path.isfile(_MOVING.format(path))
        if is_there and new.with_name(name) != path:
            yield path, new.with_name(name)


def _make_room(path: Path) -> Iterator[str]:
    """Set a file of a photo that is gone aside; remove it if captioner wrote all of it."""
    if not os.path.lexists(path):
        return
    with suppress(UserError):
        if path.suffix.lower() == ".xmp" and is_own(Packet(read_bytes(path), f"{path}")):
            path.unlink()
            return
    aside = path.with_name(f"{path.name}.orphaned")
    if os.path.lexists(aside):
        raise FileExistsError(0, f"{path} and {aside} are in the way")
    os.rename(path, aside)
    yield f"{path} is of a photo that is gone; it is {aside} now"
