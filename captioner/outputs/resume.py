"""Resuming: which photos of a run have a record already, in a table of an earlier run.

A filter before anything is captioned. The table is read once; of each photo, its name stays.
"""

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path

from captioner.errors import UserError, counted
from captioner.files import JsonObject, real_path
from captioner.library import Library, Words
from captioner.outputs.descriptions import words_of
from captioner.outputs.json_lines import JsonLines
from captioner.outputs.known_photos import find_by_digest, is_as_before, note_state
from captioner.outputs.origin import check_origin
from captioner.outputs.record import PERSON, PhotoRecord
from captioner.outputs.sink import Run, Sink
from captioner.vision.digest import photo_digest

Lost = dict[str, tuple[str, str]]
"""Names and digests of photos that are not where their records have them, by keys of the table."""


class Resumed:
    """What a table of an earlier run says of a run's photos.

    A record whose photo has another name now gets that name. One whose photo is nowhere stays in
    the table, under its name and digest.

    finished: photos that need no caption. changed: those of which something is written anew.
    replaced: records of captions by people, by the photos that stand there now, with the reason as
        error; none if `edited` says that they are the same.

    folders: in which the names of the table may be.
    """

    def __init__(self, run: Run, table: JsonLines, sinks: Sequence[Sink], *folders: str) -> None:
        self.finished, self.changed = set[str](), set[str]()
        self.replaced: dict[str, PhotoRecord] = {}
        self._run, self._table, self._sinks = run, table, sinks
        self._folders = folders or ["", os.path.dirname(table.path)]
        self._gone, self._moves = dict[str, str](), dict[str, str]()
        self._by_person = set[str]()

    def find(self, origin: JsonObject | None = None, names: Sequence[str] = ()) -> None:
        """Read the table. Refuses captions of another origin; names: see `check_origin`.

        origin: None if nothing is captioned: then all records are kept as if by people.
        """
        self._has_model = origin is not None
        lost: Lost = {}
        for place, record in self._table.lines():
            if origin and record.saved and not (record.error or self._run.options.resume_any):
                check_origin(record.saved, origin, names, self._table.path)
            name = key = self._name_of(record.image)
            if not self._is_there(name, record):
                key = f"{name}\0{record.photo_digest}"
                lost[key] = name, record.photo_digest
            if key in self._by_person and not record.is_by_person:
                self._table.is_stale = True
                continue
            self._table.drop(key)
            self._table.places[key] = place
            self._take(key, record)
        self._let_follow(lost)
        self._settle(lost)

    def records(self, everything: bool) -> Iterator[PhotoRecord]:
        """The records of finished photos, and of others that are in the table.

        everything: False: those of `changed` alone.
        """
        for name in [*self._table.places]:
            is_kept = everything and (name in self.finished or name not in self._run.photos)
            record = self.read(name) if is_kept or name in self.changed else None
            if record and record.is_done:
                yield record

    def read(self, name: str) -> PhotoRecord | None:
        """The record of a photo's name, as it is to be now."""
        record = self._table.read(name)
        return record and self._revised(name, record)

    def _take(self, name: str, record: PhotoRecord) -> None:
        """Note the last record of a photo."""
        for names in (self.finished, self.changed, self._by_person):
            names.discard(name)
        if record.is_by_person:
            self._by_person.add(name)
        if name not in self._run.photos or not record.is_done:
            return
        record.image = name
        if all(sink.has_files(record) for sink in self._sinks if sink.draws):
            self.finished.add(name)
            is_changed = self._revised(name, record).to_dict() != record.saved
            if record.is_sure(self._run.options.min_confidence):
                is_changed |= not all(sink.has_files(record) for sink in self._sinks)
            if is_changed:
                self.changed.add(name)

    def _revised(self, name: str, record: PhotoRecord) -> PhotoRecord:
        """A record with its photo's name and state now; one that a person changed is marked."""
        if record.is_by_person:
            record.by = PERSON
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

    def _let_follow(self, lost: Lost) -> None:
        """Give records the new names of their photos, and let what is beside these follow.

        The table comes last: after a kill, the next run does all of this again.
        """
        table, options = self._table, self._run.options
        free = (photo for photo in self._run.photos if photo not in table.places)
        places = {key: (self._paths(name), digest) for key, (name, digest) in lost.items()}
        self._moves = find_by_digest(places, free)
        if self._moves and options.dry_run and options.jsonl:
            renamed = f"{counted(len(self._moves), 'photo')} of {table.path} have other names now"
            raise UserError(f"{renamed}: run without --dry-run once, so that words follow them")
        moved = chain(self._strayed_words(), self._moved_words(lost))
        if options.dry_run:
            others = {new for _, new, _ in moved}
            about = f"other names now: {counted(len(others), 'photo')}; without --dry-run,"
            if others:
                self._run.report(f"{about} sidecars and texts follow them first")
            moved = chain()
        for sentence in Library().follow(moved):
            self._run.report(sentence)
        for key, photo in self._moves.items():
            table.places[photo] = table.places.pop(key)
            del lost[key]
        if self._moves:
            table.rewrite({*self._moves.values()})
        for photo in self._moves.values():
            if record := table.read(photo):
                self._take(photo, record)

    def _strayed_words(self) -> Iterator[tuple[str, str, Words]]:
        """The same as `_moved_words`, of sidecars that are neither at the old name nor the new.

        An earlier `write` moved them: it has no table in which to note the names of that time.
        """
        owners = dict[str, str]()  # Keys of the table, by digest.
        for key in self._table.places if not self._has_model else ():
            record = self._table.read(key) if self._photo_of(key) else None
            if record and record.photo_digest:
                owners[record.photo_digest] = key
        photos = {digest: self._photo_of(key) for digest, key in owners.items()}
        for old, digest in Library().strays(photos, photo_digest):
            if record := self._table.read(owners[digest]):
                yield old, photos[digest], words_of(record, self._run.options)

    def _photo_of(self, key: str) -> str:
        """The photo that has a key of the table now; "" if none has."""
        photo = self._moves.get(key, key)
        return photo if photo in self._run.photos else ""

    def _moved_words(self, lost: Lost) -> Iterator[tuple[str, str, Words]]:
        """Old and new paths of photos, and their words."""
        for key, photo in self._moves.items():
            if record := self._table.read(key):
                paths = {real_path(path): path for path in self._paths(lost[key][0])}
                for path in paths.values():
                    yield path, photo, words_of(record, self._run.options)

    def _settle(self, lost: Lost) -> None:
        """Give back the names of photos that are nowhere, unless others have records there."""
        table = self._table
        for key, (name, _) in sorted(lost.items()):
            is_kept = key in self._by_person or not self._has_model
            if name not in self._run.photos or (is_kept and name in table.places):
                self._gone[key] = name
            elif name in table.places:
                table.drop(key)
            else:
                table.places[name] = table.places.pop(key)
                if is_kept and (record := self.read(name)):
                    self._settle_replaced(name, record)

    def _settle_replaced(self, name: str, record: PhotoRecord) -> None:
        """Refuse the photo in place of that of a record; --edited: it is the same."""
        if self._run.options.edited:
            self._take(name, record)
            return
        reason = f"{name} is another photo than the one of {record.caption!r}, which is found "
        record.error = f"{reason}nowhere: nothing is written (--edited: it is the same photo)"
        self.replaced[name] = record

    def report(self) -> None:
        """Say what became of the records of moved photos and of those that are gone.

        --prune: those of machines go.
        """
        path, options, report = self._table.path, self._run.options, self._run.report
        if self._moves:
            report(f"{path}: {counted(len(self._moves), 'moved record')}")
        if options.prune and not options.dry_run:
            pruned = {key: self._gone.pop(key) for key in self._gone.keys() - self._by_person}
            for key in pruned:
                self._table.drop(key)
            sidecars = sum(map(Library().remove_orphan, sorted(pruned.values())))
            removed = f"{counted(len(pruned), 'record')} and {counted(sidecars, 'sidecar')}"
            report(f"{path}: pruned {removed}")
        if self._gone:
            first = next(iter(self._gone.values()))
            about = (
                f"{counted(len(self._gone), 'record')} of photos that are gone, {first} the first"
            )
            report(f"{path} keeps {about}, and what was written beside them")

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
