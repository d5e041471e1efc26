"""Sidecars and texts follow photos that were renamed."""

import glob
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from captioner.library.beside import Beside

_MOVING = "{}.moving"
"""Name of a file on its way, as places may swap; after a kill, the next run takes it there."""


def follow(moved: Mapping[str, str]) -> list[str]:
    """Rename the files beside photos with these; returns sentences about what was in the way."""
    beside, said = Beside(), list[str]()
    found = (_files_of(Path(old), Path(new), beside) for old, new in moved.items())
    targets = {path: target for each in found for path, target in each}
    for path in targets:
        if not os.path.lexists(_MOVING.format(path)):
            with suppress(OSError):  # It is named below.
                os.rename(path, _MOVING.format(path))
    for path, target in targets.items():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(target):
                os.link(target, f"{target}.orphaned")  # Which replaces no other.
                os.unlink(target)
                said.append(f"{target} is of a photo that is gone; it is {target}.orphaned now")
            os.rename(_MOVING.format(path), target)
        except OSError as error:
            kept = f"see {path} or {_MOVING.format(path)}"
            said.append(f"{path} cannot be renamed to {target} ({error.strerror}); {kept}")
    return said


def _files_of(old: Path, new: Path, beside: Beside) -> Iterator[tuple[Path, Path]]:
    """The files beside a photo, and their new names; not those that are another photo's, too."""
    short, long = beside.sidecars(old)
    is_alone = not {path.name for path in beside.namesakes(old)} - {old.name}
    text = beside.text(old)
    copies = text.parent.glob(f"{glob.escape(text.name)}.before*")
    alone = [*short, text, *copies] if is_alone else []
    names = {path: new.stem + path.name[len(old.stem) :] for path in alone}
    names |= {path: new.name + path.name[len(old.name) :] for path in long}
    for path, name in names.items():
        is_there = os.path.isfile(path) or os.path.isfile(_MOVING.format(path))
        if is_there and new.with_name(name) != path:
            yield path, new.with_name(name)
