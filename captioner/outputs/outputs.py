"""Gives captions to all sinks of a run; resumes from JSON lines."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path

from captioner import files
from captioner.caption.caption import DRAWN_SIDE, Caption
from captioner.errors import UserError, noted
from captioner.memory_limits import allowed_cores
from captioner.outcomes import MOST_WORKERS, Failed, in_background
from captioner.outputs.descriptions import Descriptions
from captioner.outputs.drawings import Gif, Overlay, Page, WordMaps
from captioner.outputs.json_lines import JsonLines
from captioner.outputs.known_photos import file_state, note_state
from captioner.outputs.options import CaptionSource, OutputOptions
from captioner.outputs.origin import check_origin, origin_of
from captioner.outputs.record import PERSON, PhotoRecord
from captioner.outputs.resume import Resumed
from captioner.outputs.saved_maps import SavedMaps
from captioner.outputs.shards import Shards
from captioner.outputs.sink import Run, Sink
from captioner.outputs.tables import Csv, Json, Parquet
from captioner.text.languages import ENGLISH
from captioner.vision.digest import photo_digest
from captioner.vision.images import ImageSource, Report, load_image
from captioner.vision.shards import source_status

DRAWN = {"overlay": Overlay, "gif": Gif, "words": WordMaps, "html": Page, "save_maps": SavedMaps}
DESCRIBED = {"describes_photos": Descriptions}
OTHERS = {"shards": Shards}
TABLES = {"jsonl": JsonLines, "parquet": Parquet, "json_file": Json, "csv": Csv}
"""The sinks by option, in the order in which a record passes them. Those of other packages, entry
points of the group `captioner.outputs`, come before the tables."""


def sinks_of(run: Run, kinds: Mapping[str, type[Sink]]) -> list[Sink]:
    """The sinks that the options of a run ask for."""
    given = {option: getattr(run.options, option) for option in kinds}
    return [kinds[option](str(value), run) for option, value in given.items() if value]


def other_sinks(run: Run) -> Iterator[Sink]:
    """The sinks of other packages that a run asks for."""
    for named in run.options.output:
        installed = {point.name: point for point in entry_points(group="captioner.outputs")}
        name, _, path = named.partition("=")
        if name not in installed or not path:
            known = ", ".join(sorted(installed)) or "none"
            raise UserError(f"--output {named} is not NAME=PATH of one installed: {known}")
        yield installed[name].load()(path, run)


class Outputs:
    """Writes captions where options say; made by `opened_outputs`.

    run: what sinks know of it.
    finished: photos whose captions an earlier run has left; what they lack is written.
    remaining: those to caption: the others, or all if a sink needs their maps.
    """

    def __init__(self, run: Run, source: CaptionSource) -> None:
        self.run, options = run, run.options
        self._tables = sinks_of(run, TABLES)
        others = [*sinks_of(run, OTHERS), *other_sinks(run)]
        self.sinks = [*sinks_of(run, DRAWN), *sinks_of(run, DESCRIBED), *others, *self._tables]
        self._drawing = [sink for sink in self.sinks if sink.draws]
        self._check_paths()
        self._origin = origin_of(source) if options.tables or options.shards else {}
        self._resumed: Resumed | None = None
        self.finished, replaced = set[str](), set[str]()
        if options.resumes and self._tables and isinstance(self._tables[0], JsonLines):
            origin = {**self._origin, "language": source.language or ENGLISH}
            names, table = [*source.search], self._tables[0]
            check = partial(check_origin, origin=origin, names=names, path=table.path)
            self._resumed = Resumed(run, table, self.sinks, None if options.resume_any else check)
            self._resumed.report()
            self.finished, replaced = self._resumed.finished, {*self._resumed.replaced}
        elif options.resumes:  # By --text or --shards alone.
            (sink,) = self.sinks
            self.finished = {*filter(sink.is_finished, run.photos)}
        needs_maps = any(sink.needs_maps for sink in self.sinks)
        done = replaced if needs_maps else replaced | self.finished
        self.remaining = {name: run.photos[name] for name in run.photos if name not in done}

    def _check_paths(self) -> None:
        options, photos = self.run.options, self.run.photos
        files_of = [sink.files(photo).items() for sink in self._drawing for photo in photos]
        drawings = [*chain.from_iterable(files_of)]
        tables = [(option, path) for option, path in options.tables.items() if path != "-"]
        written = [(f"--{option}", path) for option, path in [*tables, *drawings]]
        inputs = set(map(files.real_path, photos)) if written else set()
        for option, path in written:
            if files.real_path(path) in inputs:
                raise UserError(f"{option} {path} is a photo to caption; name another file")
        files.check_files(written, options.overwrite or options.resumes, folders=("--words",))
        files.remove_leftovers(Path(path) for option, path in drawings if option != "words")

    def write(self, captions: Iterable[Caption | Failed]) -> Iterator[PhotoRecord]:
        """Give captions, and what an earlier run left, to all sinks; yields new and failed records.

        The `error` of a record says why a photo failed, or what could not be written.
        """
        records: Iterable[PhotoRecord] = map(self._record, captions)
        if self._resumed:
            yield from self._resumed.replaced.values()
            kept = self._resumed.records()
            kept = (record for record in kept if record.image not in self.remaining)
            records = chain(kept, records)
        for record in self.give(records):
            if record.made or record.error:
                yield record

    def give(self, records: Iterable[PhotoRecord]) -> Iterator[PhotoRecord]:
        """Give records to all sinks; yields them."""
        is_slow = any(sink.draws or sink.takes_any_order for sink in self.sinks)
        workers = min(allowed_cores(), MOST_WORKERS) if is_slow else 0
        for record in in_background(self._prepare, records, workers):
            self._give(record)
            yield record

    def _record(self, item: Caption | Failed) -> PhotoRecord:
        """The record of a photo, a new one or that by a person, with the state when it was read."""
        name, options = item.name or "", self.run.options
        source = self.run.photos.get(name, name)
        before = self._resumed and self._resumed.read(name)
        made = None if isinstance(item, Failed) else item.with_keywords(options.keywords)
        reason = item.reason if isinstance(item, Failed) else ""
        if made and made.status and file_state(made.status) != file_state(source_status(source)):
            made, reason = None, f"{name} changed while it was captioned; caption it again"
        if before and (before.is_by_person or name in self.finished):
            record = before
            record.error = ""
        else:
            fields = made.to_dict() if made else {}
            if made and made.given:
                fields["by"] = PERSON
            record = PhotoRecord(**self._origin, image=name, **fields)
            record.own_texts = [*before.by_model, before.written] if before else []
        record.made = made
        if reason:
            record.add_problem(reason)
            return record
        note_state(record, source)
        if (options.tables or options.xmp) and (digest := photo_digest(name)):
            record.photo_digest = digest
        return record

    def _prepare(self, record: PhotoRecord) -> PhotoRecord:
        """Write a photo's drawings, as large as they are: the model may see fewer pixels."""
        made = record.made
        if self._drawing and made and made.words and made.region:
            source, seconds = self.run.photos[record.image], self.run.options.decoding_seconds
            with noted(record.add_problem):
                photo = load_image(source, sufficient_side=DRAWN_SIDE, decoding_seconds=seconds)
                caption = made.of_photo(photo, made.region)
                for sink in self._drawing:
                    with noted(record.add_problem):
                        sink.draw(record, caption)
        self._give(record, any_order=True)
        return record

    def _give(self, record: PhotoRecord, any_order: bool = False) -> None:
        """Give a record to its sinks: to those that take any order, or to the others."""
        is_sure = record.is_sure(self.run.options.min_confidence)
        for sink in self.sinks:
            if sink.takes_any_order == any_order and (is_sure or sink.takes_unsure):
                with nullcontext() if sink in self._tables else noted(record.add_problem):
                    sink.add(record)


@contextmanager
def opened_outputs(
    options: OutputOptions,
    photos: Mapping[str, ImageSource],
    report: Report = print,
    source: CaptionSource = CaptionSource(),  # noqa: B008 (it is frozen)
) -> Iterator[Outputs]:
    """Yields outputs, closed at the end, also when interrupted; locks tables and page.

    photos: to caption, by name. report: takes sentences for people. source: where captions come
        from, as records have it.
    """
    with ExitStack() as stack:
        for path in {*options.tables.values()} - {"", "-"}:
            stack.enter_context(files.file_lock(path))
            files.remove_temporaries_of(path)
        outputs = Outputs(Run(options, dict(photos), report), source)
        for sink in outputs.sinks:  # One that cannot be written does not stop the others.
            stack.callback(sink.close)
        yield outputs
