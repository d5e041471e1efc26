"""Resuming: which photos of a run have a record already, in a table of an earlier run.

A filter before anything is captioned. The table is read once; of each photo, its name stays.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from captioner.errors import UserError, counted
from captioner.files import real_path
from captioner.library import Library, Words, follow, strays
from captioner.outputs.descriptions import words_of
from captioner.outputs.json_lines import JsonLines
from captioner.outputs.known_photos import find_by_digest, is_as_before, note_state
from captioner.outputs.record import PERSON, PhotoRecord
from captioner.outputs.sink import Run, Sink
from captioner.vision.digest import photo_digest
from captioner.vision.shards import SHARD_SUFFIXES

Check = Callable[[PhotoRecord], None]

_LOST = "\0"
"""Parts name and digest, in the key of a record whose photo is not at its name."""


class Resumed:
    """What a table of an earlier run says of a run's photos.

    A record whose photo has another name now gets that name. One whose photo is nowhere stays in
    the table, under its name and digest.

    finished: photos that need no caption. kept: those of the table whose records sinks lack.
    replaced: records of captions by people, by the photos that stand there now, with the reason as
        error; none if `edited` says that they are the same.

    sinks: of a run that captions; without them all records are kept as if by people.
    check: refuses records of another origin. folders: in which the names of the table may be.
    """

    def __init__(
        self, run: Run, table: JsonLines, sinks: Sequence[Sink], check: Check | None, *folders: str
    ) -> None:
        self.finished, self._kept, self._by_person = set[str](), set[str](), set[str]()
        self.replaced: dict[str, PhotoRecord] = {}
        self._run, self._table, self._has_model = run, table, bool(sinks)
        self._sinks = [sink for sink in sinks if not sink.needs_maps]  # Others get all captions.
        self._folders = folders or ["", os.path.dirname(table.path)]
        self._digests = dict[str, str]()  # Without a model, by the table's keys.
        for place, record in table.lines():
            if check:
                check(record)
            key = self._name_of(record.image)
            is_there = self._is_there(key, record)
            is_photo = is_there and Path(key).suffix.lower() not in ("", *SHARD_SUFFIXES)
            is_failed = record.error and not record.caption and key not in run.photos
            key += "" if is_there else f"{_LOST}{record.photo_digest}"
            is_replaced = key in self._by_person and not record.is_by_person
            if is_replaced or (is_failed and not is_photo):  # A folder, a pattern, or a tar.
                table.is_stale = True
                continue
            table.drop(key)
            table.places[key] = place
            self._take(key, record)
        free = (photo for photo in run.photos if photo not in table.places)
        lost = {key: (self._paths(name), digest) for key, name, digest in self._lost()}
        self._moves = find_by_digest(lost, free)
        self._let_follow()
        self._settle()

    def records(self) -> Iterator[PhotoRecord]:
        """The records that sinks get."""
        for name in [*self._table.places]:
            record = self.read(name) if name in self._kept else None
            if record and record.is_done:
                yield record

    def read(self, name: str) -> PhotoRecord | None:
        """The record of a photo's name, as it is to be now."""
        record = self._table.read(name)
        return record and self._revised(name, record)

    def _take(self, name: str, record: PhotoRecord) -> None:
        """Note the last record of a photo."""
        for names in (self.finished, self._kept, self._by_person):
            names.discard(name)
        if record.is_by_person:
            self._by_person.add(name)
        is_in_run = name in self._run.photos
        if not self._has_model:  # A sidecar without a digest would be nobody's.
            is_needed = is_in_run and self._run.options.xmp
            self._digests[name] = record.photo_digest or (photo_digest(name) if is_needed else "")
        if is_in_run:
            record.image = name
        are_drawn = all(sink.has(record) for sink in self._sinks if sink.draws and is_in_run)
        if record.is_done and is_in_run and are_drawn:
            self.finished.add(name)
            record = self._revised(name, record)
        if name in self.finished or not is_in_run:
            is_sure = record.is_sure(self._run.options.min_confidence)
            others = [sink for sink in self._sinks if not sink.draws]
            if not all(sink.has(record) for sink in others if is_sure or sink.takes_unsure):
                self._kept.add(name)

    def _revised(self, name: str, record: PhotoRecord) -> PhotoRecord:
        """A record with its photo's name and state now; one that a person changed is marked."""
        if record.is_by_person:
            record.by = PERSON
        if name in self._digests:
            record.photo_digest = self._digests[name]
        if source := self._run.photos.get(name):
            record.image = name
        if source and name in self.finished:
            record.error = ""
            if not is_as_before(record, source):
                note_state(record, source)
                record.photo_digest = photo_digest(name) or record.photo_digest
        return record

    def _is_there(self, name: str, record: PhotoRecord) -> bool:
        """Whether there is the photo of a record; where a record has no digest, the name counts."""
        if name not in self._run.photos:
            return any(map(_exists, self._paths(name)))
        is_same = is_as_before(record, self._run.photos[name])
        if is_same and not record.is_by_person:
            return True
        digest = photo_digest(name) if record.photo_digest else ""
        is_by_name = is_same or (record.is_by_person and not record.photo_digest)
        return digest == record.photo_digest if digest else is_by_name

    def _lost(self) -> list[tuple[str, str, str]]:
        """Keys, names and digests of records whose photos are not at their names."""
        parts = ((key, key.partition(_LOST)) for key in sorted(self._table.places))
        return [(key, name, digest) for key, (name, is_lost, digest) in parts if is_lost]

    def _let_follow(self) -> None:
        """Give records the new names of their photos, and let what is beside these follow.

        The table comes last: after a kill, the next run does all of this again.
        """
        table, options, report = self._table, self._run.options, self._run.report
        moved = self._moved_words()
        if options.dry_run:
            others = {new for _, new, _ in moved}
            about = f"{counted(len(others), 'photo')} of the table have other names now"
            advice = f"{about}; without --dry-run, sidecars and texts follow them first"
            if others and self._has_model:
                raise UserError(advice)
            if others:
                report(advice)
        for sentence in follow(moved):
            report(sentence)
        for key, photo in self._moves.items():
            table.places[photo] = table.places.pop(key)
        if self._moves:
            table.rewrite({*self._moves.values()})
        for photo in self._moves.values():
            if record := table.read(photo):
                self._take(photo, record)

    def _moved_words(self) -> Iterator[tuple[str, str, Words]]:
        """Old and new paths of photos with other names now, and their words.

        Also of those whose sidecars are neither at the old name nor the new, as an earlier `write`
        moved them: it has no table in which to note the names of that time.
        """
        keys = {digest: key for key, digest in self._digests.items() if digest}
        photos = {digest: self._moves.get(key, key) for digest, key in keys.items()}
        photos = {digest: photos[digest] for digest in photos if photos[digest] in self._run.photos}
        olds = [(path, keys[digest]) for path, digest in strays(photos, photo_digest)]
        for key in self._moves:
            paths = {real_path(path): path for path in self._paths(key.partition(_LOST)[0])}
            olds += [(path, key) for path in paths.values()]
        for path, key in olds:
            if record := self.read(key):
                yield path, self._moves.get(key, key), words_of(record, self._run.options)

    def _settle(self) -> None:
        """Give back the names of photos that are nowhere, unless others have records there."""
        table = self._table
        for key, name, _ in self._lost():
            is_kept = key in self._by_person or not self._has_model
            if name not in self._run.photos or (is_kept and name in table.places):
                continue
            if name in table.places:
                table.drop(key)
                continue
            table.places[name] = table.places.pop(key)
            record = self.read(name)
            if is_kept and record and self._run.options.edited:
                self._take(name, record)
            elif is_kept and record:
                reason = f"{name} is another photo than the one of {record.caption!r}, which is "
                advice = "found nowhere: nothing is written (--edited: it is the same photo)"
                record.error = reason + advice
                self.replaced[name] = record

    def report(self) -> None:
        """Say what became of the records of moved photos and of those that are gone.

        --prune: those of machines go.
        """
        path, options, report = self._table.path, self._run.options, self._run.report
        if self._moves:
            report(f"{path}: {counted(len(self._moves), 'moved record')}")
        if options.prune and not options.dry_run:
            pruned = [(key, name) for key, name, _ in self._lost() if key not in self._by_person]
            for key, _ in pruned:
                self._table.drop(key)
            sidecars = sum(map(Library().remove_orphan, (name for _, name in pruned)))
            removed = f"{counted(len(pruned), 'record')} and {counted(sidecars, 'sidecar')}"
            report(f"{path}: pruned {removed}")
        if gone := self._lost():
            about = f"of photos that are gone, {gone[0][1]} the first"
            count = counted(len(gone), "record")
            report(f"{path} keeps {count} {about}, and what was written beside them")

    @cached_property
    def _by_path(self) -> dict[str, str]:
        return {real_path(photo): photo for photo in self._run.photos}

    def _paths(self, name: str) -> list[str]:
        """Where a photo may be, or have been."""
        if name in self._run.photos:
            return [name]
        return [os.path.join(folder, name) for folder in self._folders]

    def _name_of(self, name: str) -> str:
        """A record's photo, also by another spelling, or from the table's folder."""
        if name in self._run.photos:
            return name
        found = (self._by_path.get(real_path(path)) for path in self._paths(name))
        return next(filter(None, found), name)


def _exists(photo: str) -> bool:
    """Whether there is a photo, or the shard of its name."""
    return photo == "-" or os.path.lexists(photo) or any(map(os.path.isfile, Path(photo).parents))
