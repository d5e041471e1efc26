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

_MOVING, _ORPHANED = ".moving", ".orphaned"


def follow(moved: Mapping[str, str]) -> list[str]:
    """Rename the files beside photos with these; returns a sentence about each that could not."""
    beside = Beside()
    targets: dict[Path, Path] = {}
    for old, new in moved.items():
        for path, target in _files_of(Path(old), Path(new), beside):
            if path != target and target not in targets.values():
                targets.setdefault(path, target)
    said: list[str] = []
    while targets:
        # Those whose place is free go first; in a circle, one makes room.
        free = [path for path, target in targets.items() if target not in targets]
        path = free[0] if free else next(iter(targets))
        try:
            if not free:
                moving = path.with_name(f"{path.name}{_MOVING}")
                os.rename(path, moving)
                targets[moving] = targets.pop(path)
                continue
            target = targets.pop(path)
            said += _make_room(target)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, target)
        except OSError as error:
            targets.pop(path, None)
            said.append(f"{path} could not follow its photo: {error.strerror or error}")
    return said


def _files_of(old: Path, new: Path, beside: Beside) -> Iterator[tuple[Path, Path]]:
    """The files beside a photo, or what a killed run left of them, and their new names."""
    short, long = beside.sidecars(old)
    if beside.has_namesake(old):  # Whose they may be, too.
        short, texts = [], []
    else:
        texts = [beside.text(old)]
    for path in (*short, *texts, *long):
        stem, name = (old.name, new.name) if path in long else (old.stem, new.stem)
        target = new.with_name(f"{name}{path.name[len(stem) :]}")
        moving = path.with_name(f"{path.name}{_MOVING}")
        there = next(filter(os.path.isfile, (moving, path)), None)
        if there:
            yield there, target


def _make_room(path: Path) -> Iterator[str]:
    """Set a file of a photo that is gone aside; remove it if captioner wrote all of it."""
    if not os.path.lexists(path):
        return
    if path.suffix.lower() == ".xmp":
        with suppress(UserError):
            if is_own(Packet(read_bytes(path), f"{path}")):
                path.unlink()
                return
    aside = path.with_name(f"{path.name}{_ORPHANED}")
    if os.path.lexists(aside):
        raise FileExistsError(f"{path} and {aside} are in the way")
    os.rename(path, aside)
    yield f"{path} is of a photo that is gone; it is {aside} now"
