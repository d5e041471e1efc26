"""Sidecars and texts follow photos that were renamed.

A sidecar's digest says whose it is, its sidecar or its words whose a text is: what is at its place
stays there, and a run after a kill goes on.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path

from captioner.errors import UserError
from captioner.files import read_bytes
from captioner.library import merge
from captioner.library.beside import ENDINGS, Beside
from captioner.library.texts import content_of, is_own, numbered
from captioner.library.words import Words
from captioner.library.xmp import Packet

_MOVING = ".moving"
"""Ending of a file on its way to the name before it, as places may swap."""


def follow(moved: Iterable[tuple[str, str, Words]]) -> list[str]:
    """Rename the files beside photos with these; returns sentences about what was in the way."""
    beside, said, folders = Beside(), list[str](), set[Path]()
    sources = dict[Path, Path]()  # By the new name.
    for old, new, words in moved:
        folders.add(Path(new).parent)
        with _noted(said):
            for path, target in _followers(Path(old), Path(new), words, beside, said):
                sources.setdefault(target, path)
    for target, path in sources.items():
        with _noted(said, f"{path} cannot be renamed to {target}"):
            if not os.path.lexists(f"{target}{_MOVING}"):
                os.rename(path, f"{target}{_MOVING}")
    for moving in (path for folder in folders for path in sorted(folder.glob(f"*{_MOVING}"))):
        if {suffix.lower() for suffix in moving.suffixes} & {*ENDINGS}:
            _settle(moving, sources, said)
    return said


def _followers(
    old: Path, new: Path, words: Words, beside: Beside, said: list[str]
) -> list[tuple[Path, Path]]:
    """The files of a photo beside its old name, with their new names: texts first.

    A sidecar without a digest is another program's: it follows if no photo has the old name, and
    nothing is in its way.
    """
    short, long = beside.sidecars(old)
    targets = {path: new.with_name(f"{new.stem}{path.suffix}") for path in short}
    targets |= {path: new.with_name(f"{new.name}{path.suffix}") for path in long}
    is_free, has_sidecar = not beside.namesakes(old), False
    sidecars = list[tuple[Path, Path]]()
    for path, target in targets.items():
        digest, digest_there = _digest(path), _digest(target)
        has_sidecar |= digest_there == words.photo_digest != ""
        is_its_own = digest == words.photo_digest != digest_there
        is_unmarked = not digest and is_free and not os.path.lexists(target)
        if os.path.isfile(path) and (is_its_own if digest else is_unmarked):
            sidecars.append((path, target))

    text = beside.text(old)
    content, there = content_of(text), content_of(beside.text(new))
    is_here, is_there = (bool(each) and is_own(each, words) for each in (content, there))
    if not content or not (sidecars if is_here == is_there else is_here):
        if content and not (is_there or has_sidecar):
            said.append(f"{text} stays: nothing says that it is of {new}, which was {old}")
        return sidecars
    target = new.with_name(f"{new.stem}{text.suffix}")
    # The text last: after a kill, it tells of the copies that are left.
    copies = [*takewhile(os.path.lexists, numbered(text, "before"))][::-1]
    renamed = [
        (copy, target.with_name(target.name + copy.name[len(text.name) :])) for copy in copies
    ]
    return [*renamed, (text, target), *sidecars]


def _digest(sidecar: Path) -> str:
    """Of the photo whose a sidecar is; "" if it has none."""
    with suppress(UserError):
        return "".join(merge.texts(Packet(read_bytes(sidecar), "").properties, merge.DIGEST))
    return ""


def _settle(moving: Path, sources: Mapping[Path, Path], said: list[str]) -> None:
    """Give a file its new name, and what is there the ending `.orphaned`; else it goes back."""
    target = moving.with_suffix("")
    source = sources.get(target, target)
    with _noted(said, f"{source} cannot be renamed to {target}"):
        try:
            if os.path.lexists(target):
                orphan = next(
                    each for each in numbered(target, "orphaned") if not os.path.lexists(each)
                )
                os.rename(target, orphan)
                said.append(f"{target} is of a photo that is gone; it is {orphan} now")
            os.rename(moving, target)
        except OSError:
            if not os.path.lexists(source):
                os.rename(moving, source)
            raise


@contextmanager
def _noted(said: list[str], problem: str = "") -> Iterator[None]:
    """Add a sentence about an error."""
    try:
        yield
    except UserError as error:
        said.append(f"{error}")
    except OSError as error:
        said.append(f"{problem}: {error.strerror or error}")
