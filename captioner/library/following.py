"""Sidecars and texts follow photos that were renamed.

A sidecar's digest says whose it is, its sidecar or its words whose a text is: what is at its place
stays there, and a run after a kill goes on.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, takewhile
from pathlib import Path

from captioner.errors import UserError, noted
from captioner.files import read_bytes, refuse_os_errors
from captioner.library import merge
from captioner.library.beside import ENDINGS, Beside, is_photo
from captioner.library.texts import content_of, is_own, numbered
from captioner.library.words import Words
from captioner.library.xmp import Packet

_MOVING = ".moving"
"""Ending of a file on its way to the name before it, as places may swap."""


def follow(moved: Iterable[tuple[str, str, Words]]) -> list[str]:
    """Rename the files beside photos that were renamed, all at once: they may swap.

    What is in the way gets the ending `.orphaned`. Returns a sentence about each such file, and
    about each text of which nothing says whose it is.

    moved: the old name, the new one, and the words that a record has for the photo.
    """
    beside, said, folders = Beside(), list[str](), set[Path]()
    sources = dict[Path, Path]()  # By the new name.
    for old, new, words in moved:
        photo, place = Path(old), Path(new)
        folders.add(place.parent)
        sidecars, is_there = _sidecars(photo, place, words.photo_digest, beside)
        renamed: list[tuple[Path, Path]] = []
        with noted(said.append):
            renamed = _texts(photo, place, words, beside, bool(sidecars), is_there)
        for path, target in [*renamed, *sidecars]:  # After a kill, sidecars tell of texts.
            sources.setdefault(target, path)
    for target, path in sources.items():
        with noted(said.append), refuse_os_errors(f"{path} cannot be renamed to {target}"):
            if not os.path.lexists(f"{target}{_MOVING}"):
                os.rename(path, f"{target}{_MOVING}")
    places = (folder.glob(f"*{ending}*{_MOVING}") for folder in folders for ending in ENDINGS)
    for moving in sorted({*chain.from_iterable(places)}):  # The sidecar of a.txt.jpg is in both.
        target = moving.with_suffix("")
        with noted(said.append), refuse_os_errors(f"{moving} cannot be renamed to {target}"):
            if os.path.lexists(target):
                orphans = numbered(target, "orphaned")
                orphan = next(path for path in orphans if not os.path.lexists(path))
                os.rename(target, orphan)
                said.append(f"{target} is of another photo; it is {orphan} now")
            os.rename(moving, target)
    return said


def strays(
    photos: Mapping[str, str], photo_digest: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """The names of photos beside which sidecars of others lie, and the digests of those others.

    Also a name and a digest of each folder in which a run was killed while files were on their way.

    photos: by their digests. photo_digest: gives the digest of a photo's file.
    """
    beside = Beside()
    folders = {Path(photo).parent: digest for digest, photo in photos.items()}
    for folder in sorted(folders):
        if any(folder.glob(f"*{_MOVING}")):
            yield f"{folder / _MOVING}", folders[folder]
        for sidecar in (path for path in sorted(folder.iterdir()) if path.suffix.lower() == ".xmp"):
            digest = digest_in(sidecar)
            own = Path(photos.get(digest, ""))
            if digest not in photos or sidecar in chain(*beside.sidecars(own)):
                continue
            old = sidecar.with_suffix("")
            if not is_photo(old.suffix):
                old = sidecar.with_suffix(own.suffix)
            if all(photo_digest(f"{other}") != digest for other in beside.namesakes(old)):
                yield f"{old}", digest


def _sidecars(
    old: Path, new: Path, photo_digest: str, beside: Beside
) -> tuple[list[tuple[Path, Path]], bool]:
    """The sidecars of a photo beside its old name, with their new names; whether one is there.

    A sidecar without a digest is another program's: it follows if no photo has the old name, and
    nothing is in its way.
    """
    short, long = beside.sidecars(old)
    targets = dict.fromkeys(short, new.with_suffix(".xmp"))
    targets |= dict.fromkeys(long, new.with_name(f"{new.name}.xmp"))
    is_free = not beside.namesakes(old)
    is_there = bool(photo_digest) and photo_digest in map(digest_in, targets.values())
    found = list[tuple[Path, Path]]()
    for path, target in targets.items():
        digest = digest_in(path)
        follows = digest == photo_digest and digest != digest_in(target)
        if not digest:
            follows = is_free and not os.path.lexists(target)
        if follows and os.path.isfile(path):
            found.append((path, target))
    return found, is_there


def _texts(
    old: Path, new: Path, words: Words, beside: Beside, with_sidecar: bool, has_sidecar: bool
) -> list[tuple[Path, Path]]:
    """The text of a photo beside its old name, behind its copies, with their new names.

    It follows if it has the photo's words and the one there has not, or earlier ones; if they are
    alike, with the sidecar.
    Raises `UserError` if nothing says whose it is, unless the words or the sidecar went along
    already, and the text may be of the photo that has the old name now.
    """
    text, target = beside.text(old), new.with_suffix(".txt")
    content, there = content_of(text), content_of(beside.text(new))
    here, at_target = _likeness(content, words), _likeness(there, words)
    if content and (here > at_target or (here == at_target and with_sidecar)):
        copies = [*takewhile(os.path.lexists, numbered(text, "before"))]
        renamed = [*zip(copies, numbered(target, "before"), strict=False)]
        return [*renamed[::-1], (text, target)]
    may_be_of_other = (at_target or has_sidecar) and beside.namesakes(old)
    if content and not (here or may_be_of_other):
        raise UserError(f"{text} stays: nothing says that it is of {new}, which was {old}")
    return []


def _likeness(text: str, words: Words) -> int:
    """How much a text is a photo's: its caption is most, then one that it had."""
    return (text in (words.caption, words.line)) + is_own(text, words) if text else 0


def digest_in(sidecar: Path) -> str:
    """Of the photo whose a sidecar is; "" if it has none."""
    with suppress(UserError):
        return merge.digest_of(Packet(read_bytes(sidecar), ""))
    return ""
