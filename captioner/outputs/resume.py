"""Resuming: which photos of a run have a record already, in a table of an earlier run.

A filter before anything is captioned. The table is read once; of each photo, its name stays.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from captioner.errors import counted
from captioner.files import real_path
from captioner.library import Library
from captioner.outcomes import Failed
from captioner.outputs.json_lines import JsonLines
from captioner.outputs.record import PERSON, PLACES, PhotoRecord
from captioner.outputs.sink import Run, Sink
from captioner.vision.digest import photo_digest


class _Lost(NamedTuple):
    """A record whose photo is gone, or another one of that name.

    files: how many are left of those that were written for it; None of a failure.
    """

    digest: str
    files: int | None


@dataclass
class Resumed:
    """What a table of an earlier run says of a run's photos.

    finished: photos that need no caption. changed: those of which something is written anew.
    by_person: names of captions by people. replaced: photos that are others than those that the
    captions by people of their names were written for.
    """

    run: Run
    table: JsonLines
    sinks: Sequence[Sink]
    finished: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    by_person: set[str] = field(default_factory=set)
    replaced: list[Failed] = field(default_factory=list)
    _moved: set[str] = field(default_factory=set)

    def find(self, check_origin: Callable[[PhotoRecord], None]) -> None:
        """Read the table. check_origin: refuses a caption of another origin."""
        lost: dict[str, _Lost] = {}
        for place, record in self.table.lines(self.run.report):
            if not record.error and not self.run.options.resume_any:
                check_origin(record)
            name = self._name_of(record.image)
            if name in self.by_person and not record.is_by_person:
                self.table.is_stale = True
                continue
            self.table.put(name, place)
            lost.pop(name, None)
            if is_lost := self._is_lost(record, name):
                left = sum(map(os.path.lexists, record.files.values()))
                lost[name] = _Lost(record.photo_digest, None if record.error else left)
            self._take(name, record, is_of_photo=name in self.run.photos and not is_lost)
        library = Library()
        if moves := {} if self.run.options.dry_run else self._moves(lost):
            self._move(moves)
            for sentence in library.follow(moves):
                self.run.report(sentence)
        done = moves.keys() | self._moved
        self._end_lost({name: lost[name] for name in lost if name not in done}, library)

    def records(self, everything: bool) -> Iterator[PhotoRecord]:
        """The records of finished photos, and of others that are in the table.

        everything: False: those of `changed` alone.
        """
        for name in [*self.table.places]:
            is_kept = everything and (name in self.finished or name not in self.run.photos)
            record = self.read(name) if is_kept or name in self.changed else None
            if record and record.is_done:
                yield record

    def read(self, name: str) -> PhotoRecord | None:
        """The record of a photo's name, as it is to be now."""
        record = self.table.read(name)
        return record and self._revised(record, name)

    def _take(self, name: str, record: PhotoRecord, is_of_photo: bool) -> None:
        """Note the last record of a name."""
        for names in (self.finished, self.changed, self.by_person):
            names.discard(name)
        if record.is_by_person:
            self.by_person.add(name)
        record.image = name
        drawn = (sink for sink in self.sinks if sink.is_drawn)
        if is_of_photo and record.is_done and all(sink.has_files(record) for sink in drawn):
            self.finished.add(name)
            self._revised(record, name)
            is_sure = record.is_sure(self.run.options.min_confidence)
            is_described = not is_sure or all(sink.has_files(record) for sink in self.sinks)
            if record.to_dict() != record.saved or not is_described:
                self.changed.add(name)

    def _revised(self, record: PhotoRecord, name: str) -> PhotoRecord:
        """A record with its photo's name and state now; one that a person changed is marked."""
        is_marked = record.by == PERSON or not record.is_by_person
        if name != record.image:
            record.image = name
        if not is_marked:
            record.by = PERSON
        if not is_marked or name in self._moved:  # What is there has other words, or no photo.
            record.files = {key: record.files[key] for key in record.files.keys() - PLACES}
        if name in self.finished and not record.has_state(self.run.photos[name]):
            record.take_state(self.run.photos[name])
            record.photo_digest = photo_digest(name) or record.photo_digest
        return record

    def _is_lost(self, record: PhotoRecord, name: str) -> bool:
        """Whether a record's photo is gone, or another one has its name; the digest decides."""
        if name not in self.run.photos:
            return not any(map(_is_there, (name, self._from_table(name))))
        is_same = record.has_state(self.run.photos[name])
        if is_same and not record.is_by_person:
            return False
        digest = photo_digest(name) if record.photo_digest else ""
        return digest != record.photo_digest if digest else not (is_same or record.is_by_person)

    def _moves(self, lost: Mapping[str, _Lost]) -> dict[str, str]:
        """The new names of photos by their old ones: of photos without a record of their own."""
        names = defaultdict[str, list[str]](list)
        for name, (digest, _) in lost.items():
            names[digest].append(name)
        names.pop("", None)
        moves = {}
        for photo in self.run.photos if names else ():
            is_free = photo in lost or photo not in self.table.places
            if is_free and (alike := names.get(photo_digest(photo))):
                moves[alike.pop(0)] = photo
        return moves

    def _move(self, moves: Mapping[str, str]) -> None:
        """Give records the new names of their photos, which may be those of others."""
        places = {old: self.table.places[old] for old in moves}
        people = self.by_person & moves.keys()
        self.by_person -= people
        for old in moves:
            self.table.put(old)
        for old, new in moves.items():
            if new in self.by_person and old not in people:
                continue  # Nothing is written where a person's words are of a photo that is lost.
            if new in self.by_person:
                what = f"a caption by a person of another photo of the name {new}"
                self.run.report(f"{what} is moved to {self.table.path}.left_out")
                self.table.left_out.append(self.table.places[new])
            self.table.put(new, places[old])
            self._moved.add(new)
            if record := self.table.read(new):
                self._take(new, record, is_of_photo=True)
        self.run.report(f"{self.table.path}: {counted(len(moves), 'moved record')}")

    def _end_lost(self, lost: Mapping[str, _Lost], library: Library) -> None:
        """Drop or name the records of photos that are gone, and those by people of other photos."""
        path, options, report = self.table.path, self.run.options, self.run.report
        gone = [name for name in lost if name not in self.run.photos]
        is_pruned = options.prune and not options.dry_run
        pruned = [name for name in gone if is_pruned and name not in self.by_person]
        for name in pruned:
            self.table.put(name)
        removed = sum(map(library.remove_orphan, sorted(pruned)))
        for count, what in ((len(pruned), "record"), (removed, "sidecar")):
            if count:
                report(f"{path}: {counted(count, f'pruned {what}')}")
        left = {name: lost[name].files for name in gone if name in self.table.places}
        if kept := {name: count for name, count in left.items() if count is not None}:
            about = f"{counted(len(kept), 'record')} of photos that are gone, {min(kept)} the first"
            files = counted(sum(kept.values()), "file")
            report(f"{path} keeps {about}; beside them stays what was written: {files}")
        for name in self.by_person & lost.keys() & self.run.photos.keys():
            record = self.table.read(name)
            if record and options.edited:
                self._take(name, record, is_of_photo=True)
            elif record:
                reason = f"{name} is another photo than the one of {record.caption!r}, which is "
                reason += "found nowhere: nothing is written (--edited: it is the same photo)"
                self.replaced.append(Failed(name, reason))

    @cached_property
    def _by_path(self) -> dict[str, str]:
        return {real_path(photo): photo for photo in self.run.photos}

    def _name_of(self, name: str) -> str:
        """A record's photo, also by another spelling, or from the table's folder."""
        if name in self.run.photos:
            return name
        path = name if _is_there(name) else self._from_table(name)
        return self._by_path.get(real_path(path), name)

    def _from_table(self, path: str) -> str:
        """A path as from the folder of the table."""
        return os.path.join(os.path.dirname(self.table.path), path)


def _is_there(photo: str) -> bool:
    """Whether there is a photo, or the shard of its name."""
    return photo == "-" or os.path.lexists(photo) or any(map(os.path.isfile, Path(photo).parents))
