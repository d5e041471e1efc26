"""A library of photos, which people copy, rename, move and delete."""

import glob
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from captioner.caption.caption import Caption
from captioner.data.sidecars import read_sidecar
from captioner.errors import UserError
from captioner.outcomes import Failed
from captioner.outputs.options import PLACES
from captioner.outputs.records import Record, file_state
from captioner.vision.digest import equal_photos, photo_digest
from captioner.vision.images import PHOTO_SUFFIXES, ImageSource
from captioner.vision.raw import RAW_SUFFIXES
from captioner.vision.shards import source_status


def captioned_once(
    photos: Mapping[str, ImageSource],
    caption: Callable[[Mapping[str, ImageSource]], Iterator[Caption | Failed]],
) -> Iterator[Caption | Failed]:
    """The captions of photos, in order; of equal photos the first is captioned.

    caption: gives those of some photos, in order.
    """
    equal = equal_photos(name for name, source in photos.items() if name == source)
    found = caption({name: photos[name] for name in photos if name not in equal})
    firsts, kept = {*equal.values()}, dict[str, Caption | Failed]()
    for name in photos:
        item = kept[equal[name]] if name in equal else next(found)
        if name in firsts:
            kept[name] = item
        if name in equal and isinstance(item, Failed):
            item = Failed(name, item.reason.replace(item.name, name))
        elif name in equal and not isinstance(item, Failed):
            item = replace(item, name=name, status=source_status(name))
        yield item


def moved_photos(gone: Mapping[str, str], new: Iterable[str]) -> dict[str, str]:
    """The new names of photos by their old ones. gone: digests by old name, "" for unknown ones."""
    names = defaultdict[str | None, list[str]](list)
    for name, digest in gone.items():
        names[digest].append(name)
    moved = {}
    for photo in new if any(gone.values()) else ():
        if alike := names[photo_digest(photo) or None]:
            moved[alike.pop(0)] = photo
    return moved


def move_record(record: Record, photo: str) -> None:
    """Give a record and its sidecar and text the name of a photo that was moved."""
    old, new = Path(record["image"]), Path(photo)
    written = record.get("files", {})
    for option in written.keys() & PLACES:
        path = Path(written[option])
        moved = new.with_name(new.stem + path.name[len(old.stem) :])
        if path.is_file() and not os.path.lexists(moved):
            with suppress(OSError):  # What stays is written anew.
                shutil.move(path, moved)
        written[option] = os.fspath(moved)
    record |= {"image": photo, **file_state(source_status(photo))}


def remove_own_sidecar(record: Record) -> bool:
    """Remove the sidecar of a photo that is gone, if captioner wrote all of it."""
    path = Path(record.get("files", {}).get("xmp", ""))
    with suppress(OSError, UserError):
        beside = path.parent.glob(f"{glob.escape(path.stem)}.*")
        has_photo = any(file.suffix.lower() in PHOTO_SUFFIXES | RAW_SUFFIXES for file in beside)
        if path.is_file() and not has_photo and read_sidecar(path).is_own():
            path.unlink()
            return True
    return False
