"""Gives captions to all sinks of a run; resumes from JSON lines."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path

from captioner import files
from captioner.caption.caption import DRAWN_SIDE, Caption
from captioner.errors import UserError
from captioner.memory_limits import allowed_cores
from captioner.outcomes import MOST_WORKERS, Failed, in_background
from captioner.outputs.descriptions import Descriptions
from captioner.outputs.drawings import Gif, Overlay, Page, WordMaps
from captioner.outputs.json_lines import JsonLines
from captioner.outputs.known_photos import file_state, note_state
from captioner.outputs.options import CaptionSource, OutputOptions
from captioner.outputs.origin import origin_of
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
    installed = {point.name: point for point in entry_points(group="captioner.outputs")}
    for named in run.options.output:
        name, _, path = named.partition("=")
        if name not in installed or not path:
            known = ", ".join(sorted(installed)) or "none"
            raise UserError(f"--output {named} is not NAME=PATH of one installed: {known}")
        yield installed[name].load()(path, run)


class Outputs:
    """Writes captions where options say; made by `opened_outputs`.

    finished: photos whose captions an earlier run has left; what they lack is written.
    remaining: those to caption: the others, or all if a sink needs their maps.
    """

    def __init__(self, run: Run, source: CaptionSource) -> None:
        self._run = run
        self._tables = sinks_of(run, TABLES)
        self._others = [*sinks_of(run, OTHERS), *other_sinks(run)]
        described = sinks_of(run, DRAWN) + sinks_of(run, DESCRIBED)
        self.sinks = [*described, *self._others, *self._tables]
        self._drawing = [sink for sink in self.sinks if sink.draws]
        self._check_paths()
        self._origin = origin_of(source) if run.options.tables or run.options.shards else {}
        self._resumed: Resumed | None = None
        self.finished: set[str] = set()
        done = self.finished
        if run.options.resumes and self._tables and isinstance(self._tables[0], JsonLines):
            self._resumed = Resumed(run, self._tables[0], self.sinks)
            language = {"language": source.language or ENGLISH}
            self._resumed.find(self._origin | language, [*source.search])
            self._resumed.report()
            self.finished = self._resumed.finished
            done = self._resumed.replaced.keys() | self.finished
        elif run.options.resumes:  # By --text or --shards alone.
            (sink,) = self.sinks
            done = self.finished = {*filter(sink.is_finished, run.photos)}
        if any(sink.needs_maps for sink in self.sinks):
            done = done - self.finished
        self.remaining = {name: run.photos[name] for name in run.photos if name not in done}

    def _check_paths(self) -> None:
        options, photos = self._run.options, self._run.photos
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
        if self._resumed:
            yield from self._resumed.replaced.values()
            everything = bool(self._others or self._tables[1:])
            for record in self._resumed.records(everything):
                if record.image not in self.remaining:
                    self._add(record)
                    if record.error:
                        yield record
        workers = min(allowed_cores(), MOST_WORKERS) if self._drawing else 0
        for record in in_background(self._draw, map(self._record, captions), workers):
            self._add(record)
            yield record

    def _record(self, item: Caption | Failed) -> PhotoRecord:
        """The record of a photo, a new one or that by a person, with the state when it was read."""
        name, kind = item.name or "", self._run.options.keywords
        source = self._run.photos.get(name, name)
        before = self._resumed and self._resumed.read(name)
        made = None if isinstance(item, Failed) else item.with_keywords(kind)
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
        if self._run.options.tables and (digest := photo_digest(name)):
            record.photo_digest = digest
        return record

    def _draw(self, record: PhotoRecord) -> PhotoRecord:
        """Write a photo's drawings, as large as they are: the model may see fewer pixels."""
        made = record.made
        if self._drawing and made and made.words and made.region:
            source, seconds = self._run.photos[record.image], self._run.options.decoding_seconds
            with _noted(record):
                photo = load_image(source, sufficient_side=DRAWN_SIDE, decoding_seconds=seconds)
                caption = made.of_photo(photo, made.region)
                for sink in self._drawing:
                    with _noted(record):
                        sink.draw(record, caption)
        return record

    def _add(self, record: PhotoRecord) -> None:
        """Give a record to its sinks."""
        is_sure = record.is_sure(self._run.options.min_confidence)
        for sink in self.sinks:
            if is_sure or sink.takes_unsure:
                with nullcontext() if sink in self._tables else _noted(record):
                    sink.add(record)


@contextmanager
def _noted(record: PhotoRecord) -> Iterator[None]:
    """Note a `UserError` in a photo's record."""
    try:
        yield
    except UserError as error:
        record.add_problem(str(error))


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
        outputs = Outputs(Run(options, photos, report), source)
        for sink in outputs.sinks:  # One that cannot be written does not stop the others.
            stack.callback(sink.close)
        yield outputs
