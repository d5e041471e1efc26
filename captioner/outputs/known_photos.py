"""Which photo a record is of: its digest decides, not its name."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from captioner.outputs.record import PhotoRecord
from captioner.vision.digest import photo_digest
from captioner.vision.images import ImageSource
from captioner.vision.shards import source_status


def file_state(status: os.stat_result | None) -> tuple[int, str] | None:
    """Size and time of change of a photo's file or shard; None without one."""
    if status is None:
        return None
    try:
        changed = datetime.fromtimestamp(status.st_mtime, timezone.utc).isoformat()
    except (ValueError, OverflowError, OSError):  # Its years are 1 to 9999.
        changed = f"@{status.st_mtime}"  # Seconds since 1970, as `date -d` reads them.
    return status.st_size, changed


def note_state(record: PhotoRecord, source: ImageSource) -> None:
    """Note size and time of change of a photo's file or shard in its record."""
    if state := file_state(source_status(source)):
        record.bytes, record.modified = state


def is_as_before(record: PhotoRecord, source: ImageSource) -> bool:
    """Whether a photo's file has the size and time of change that a record has."""
    return file_state(source_status(source)) == (record.bytes, record.modified)


def find_by_digest(
    lost: Mapping[str, tuple[Iterable[str], str]], photos: Iterable[str]
) -> dict[str, str]:
    """Other photos with the digests of those that are lost; each is found once.

    Of equal photos, one in the same folder goes first (a backup may have the name), then one of
    the same name.

    lost: paths where each may have been, and its digest.
    """
    alike = defaultdict[str, list[str]](list)
    for photo in photos if any(digest for _, digest in lost.values()) else ():
        alike[photo_digest(photo)].append(photo)
    alike.pop("", None)
    found = dict[str, str]()
    for part in (os.path.dirname, os.path.basename, lambda path: ""):
        for key, (places, digest) in lost.items():
            parts = {part(os.path.abspath(place)) for place in places}
            equal = [each for each in alike.get(digest, ()) if part(os.path.abspath(each)) in parts]
            if equal and key not in found:
                found[key] = equal[0]
                alike[digest].remove(equal[0])
    return found
