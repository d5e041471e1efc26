"""Resuming: which photos of a run have a record already, in a table of an earlier run.

A filter before anything is captioned. The table is read once; of each photo, its name stays.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from captioner.errors import UserError, counted
from captioner.files import JsonObject, real_path
from captioner.library import Library
from captioner.outcomes import Failed
from captioner.outputs.json_lines import JsonLines
from captioner.outputs.origin import check_origin
from captioner.outputs.record import PERSON, PLACES, PhotoRecord, file_state
from captioner.outputs.sink import Run, Sink
from captioner.vision.digest import photo_digest
from captioner.vision.shards import source_status


@dataclass
class Resumed:
    """What a table of an earlier run says of a run's photos.

    drawn, others: the sinks by whether they draw. finished: photos that need no caption. changed:
    those of which something is written anew. replaced: photos that are others than those that the
    captions by people of their names were written for.
    """

    run: Run
    table: JsonLines
    drawn: Sequence[Sink]
    others: Sequence[Sink]
    finished: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    replaced: list[Failed] = field(default_factory=list)
    _by_person: set[str] = field(default_factory=set)
    _moved: set[str] = field(default_factory=set)

    def find(self, origin: JsonObject, names: Sequence[str]) -> None:
        """Read the table. Refuses captions of another origin; names: see `check_origin`."""
        lost: dict[str, str] = {}  # Digests of photos that are gone, or others of that name.
        for place, record in self.table.lines():
            if record.saved and not record.error and not self.run.options.resume_any:
                check_origin(record.saved, origin, names, self.table.path)
            name = self._name_of(record.image)
            if name in self._by_person and not record.is_by_person:
                self.table.is_stale = True
                continue
            self.table.put(name, place)
            lost.pop(name, None)
            if is_lost := self._is_lost(record, name):
                lost[name] = record.photo_digest
            self._take(name, record, is_of_photo=name in self.run.photos and not is_lost)
        library = Library(dry_run=self.run.options.dry_run)
        if moves := self._moves(lost):
            if self.run.options.dry_run:
                renamed = (
                    f"{counted(len(moves), 'photo')} of {self.table.path} have other names now"
                )
                raise UserError(f"{renamed}: run without --dry-run once, so that words follow them")
            self._move(moves)
            for sentence in library.follow(moves):
                self.run.report(sentence)
        lost_for_good = lost.keys() - moves.keys() - self._moved
        self._end_gone(sorted(lost_for_good - self.run.photos.keys()), library)
        self._end_replaced(sorted(lost_for_good & self.run.photos.keys() & self._by_person))

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
        for names in (self.finished, self.changed, self._by_person):
            names.discard(name)
        if record.is_by_person:
            self._by_person.add(name)
        record.image = name
        if is_of_photo and record.is_done and all(sink.has_files(record) for sink in self.drawn):
            self.finished.add(name)
            is_sure = record.is_sure(self.run.options.min_confidence)
            self._revised(record, name)
            is_there = not is_sure or all(sink.has_files(record) for sink in self.others)
            if record.to_dict() != record.saved or not is_there:
                self.changed.add(name)

    def _revised(self, record: PhotoRecord, name: str) -> PhotoRecord:
        """A record with its photo's name and state now; one that a person changed is marked."""
        is_marked = record.by == PERSON or not record.is_by_person
        record.image = name
        if not is_marked:
            record.by = PERSON
        if not is_marked or name in self._moved:  # What is there has other words, or no photo.
            record.files = {key: record.files[key] for key in record.files.keys() - PLACES}
        state = file_state(source_status(self.run.photos.get(name)))
        if name in self.finished:
            record.error = ""
            if state and state != record.state:
                record.bytes, record.modified = state
                record.photo_digest = photo_digest(name) or record.photo_digest
        return record

    def _is_lost(self, record: PhotoRecord, name: str) -> bool:
        """Whether a record's photo is gone, or another one has its name; the digest decides."""
        if name not in self.run.photos:
            return not _is_there(self._path(name))
        is_same = file_state(source_status(self.run.photos[name])) == record.state
        if is_same and not record.is_by_person:
            return False
        digest = photo_digest(name) if record.photo_digest else ""
        is_unknown = bool(record.photo_digest) or not record.is_by_person
        return digest != record.photo_digest if digest else is_unknown and not is_same

    def _moves(self, lost: Mapping[str, str]) -> dict[str, str]:
        """The new names of photos by their old ones: of photos without a record of their own."""
        names = defaultdict[str, list[str]](list)
        for name, digest in lost.items():
            names[digest].append(name)
        names.pop("", None)
        moves = {}
        for photo in self.run.photos if names else ():
            is_of_person = photo not in lost and photo in self._by_person
            alike = [] if is_of_person else names.get(photo_digest(photo), [])
            is_free = photo in lost or photo not in self.table.places
            if alike and (is_free or alike[0] in self._by_person):
                moves[alike.pop(0)] = photo
        lost_words = self._by_person - moves.keys()
        while taken := {old for old, new in moves.items() if new in lost_words}:
            moves = {old: moves[old] for old in moves.keys() - taken}
            lost_words |= taken
        return moves

    def _move(self, moves: Mapping[str, str]) -> None:
        """Give records the new names of their photos, which may be those of others."""
        places = {new: self.table.places.pop(old) for old, new in moves.items()}
        self._by_person -= moves.keys()
        for new, place in places.items():
            self.table.put(new, place)
            self._moved.add(new)
        self.table.rewrite(places)  # Before all else: a run that is killed loses no words.
        for new in places:
            if record := self.table.read(new):
                self._take(new, record, is_of_photo=True)
        self.run.report(f"{self.table.path}: {counted(len(moves), 'moved record')}")

    def _end_gone(self, gone: Sequence[str], library: Library) -> None:
        """Count the records of photos that are gone; --prune drops those of machines."""
        path, options = self.table.path, self.run.options
        is_pruned = options.prune and not options.dry_run
        pruned = [name for name in gone if is_pruned and name not in self._by_person]
        sidecars = counted(sum(map(library.remove_orphan, pruned)), "sidecar")
        for name in pruned:
            del self.table.places[name]
            self.table.is_stale = True
        if pruned:
            self.run.report(f"{path}: pruned {counted(len(pruned), 'record')} and {sidecars}")
        if kept := [name for name in gone if name in self.table.places]:
            about = f"{counted(len(kept), 'record')} of photos that are gone, {kept[0]} the first"
            self.run.report(f"{path} keeps {about}, and what was written beside them")

    def _end_replaced(self, names: Sequence[str]) -> None:
        """Refuse the photos in place of those of people's captions; --edited: they are the same."""
        for name in names:
            record = self.table.read(name)
            if record and self.run.options.edited:
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
        return self._by_path.get(real_path(self._path(name)), name)

    def _path(self, name: str) -> str:
        """The path of a record, or if it leads nowhere, that from the table's folder."""
        folder = os.path.dirname(self.table.path)
        return name if _is_there(name) else os.path.join(folder, name)


def _is_there(photo: str) -> bool:
    """Whether there is a photo, or the shard of its name."""
    return photo == "-" or os.path.lexists(photo) or any(map(os.path.isfile, Path(photo).parents))
