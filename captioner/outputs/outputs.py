"""Gives captions to all sinks of a run; resumes from JSON lines."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path

from captioner import files
from captioner.caption.caption import DRAWN_SIDE, Caption
from captioner.errors import UserError
from captioner.files import JsonObject
from captioner.library import Library
from captioner.memory_limits import allowed_cores
from captioner.outcomes import MOST_WORKERS, Failed, in_background
from captioner.outputs.descriptions import Descriptions
from captioner.outputs.drawings import Gif, Overlay, Page, WordMaps
from captioner.outputs.json_lines import JsonLines
from captioner.outputs.options import CaptionSource, OutputOptions
from captioner.outputs.origin import origin_of
from captioner.outputs.record import PERSON, PhotoRecord, file_state
from captioner.outputs.resume import Resumed
from captioner.outputs.saved_maps import SavedMaps
from captioner.outputs.sink import Run, Sink
from captioner.outputs.tables import Csv, Json, Parquet
from captioner.text.languages import ENGLISH
from captioner.vision.digest import photo_digest
from captioner.vision.images import ImageSource, Report, load_image
from captioner.vision.shards import source_status

DRAWN = {"overlay": Overlay, "gif": Gif, "words": WordMaps, "html": Page, "save_maps": SavedMaps}
OTHERS = {"describes_photos": Descriptions}
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
        self.finished: set[str] = set()
        self._run = run
        self._drawn = sinks_of(run, DRAWN)
        self._others = [*sinks_of(run, OTHERS), *other_sinks(run)]
        self._tables = sinks_of(run, TABLES)
        self.sinks = [*self._drawn, *self._others, *self._tables]
        self._check_paths()
        self._origin = origin_of(source) if run.options.tables else {}
        self._without_record: set[str] = set()
        self._resumed: Resumed | None = None
        if run.options.resumes and self._tables and isinstance(self._tables[0], JsonLines):
            self._resumed = Resumed(run, self._tables[0], self._drawn, self._others)
            language = {"language": source.language or ENGLISH}
            self._resumed.find(self._origin | language, [*source.search])
            self.finished = self._resumed.finished
            self._without_record = {each.name for each in self._resumed.replaced}
        elif run.options.resumes:  # By --text alone.
            self.finished = {*filter(Library().has_text, run.photos)}
        done = set() if any(sink.needs_all for sink in self._drawn) else self.finished
        done = done | self._without_record
        self.remaining = {name: run.photos[name] for name in run.photos if name not in done}

    def _check_paths(self) -> None:
        options, photos = self._run.options, self._run.photos
        files_of = [sink.files(photo).items() for sink in self._drawn for photo in photos]
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
            incremental = (
                Descriptions,
                JsonLines,
                SavedMaps,
            )  # They have what an earlier run gave them.
            are_new = [not isinstance(sink, incremental) for sink in self._others + self._tables]
            for record in self._resumed.records(everything=any(are_new)):
                if record.image not in self.remaining:
                    self._add(record)
                    if record.error:
                        yield record
            captions = chain(self._resumed.replaced, captions)
        workers = min(allowed_cores(), MOST_WORKERS) if self._drawn else 0
        for record in in_background(self._draw, map(self._record, captions), workers):
            self._add(record)
            yield record

    def _record(self, item: Caption | Failed) -> PhotoRecord:
        """The record of a photo, a new one or that by a person, with the state when it was read."""
        name, made = item.name or "", None
        state = file_state(source_status(self._run.photos.get(name, name)))
        if isinstance(item, Caption) and item.status and file_state(item.status) != state:
            item = Failed(name, f"{name} changed while it was captioned; caption it again")
            self._without_record.add(name)
        fields: JsonObject = {**self._origin, "image": name}
        if isinstance(item, Caption):
            made = item.with_keywords(self._run.options.keywords)
            fields |= made.to_dict() | ({"by": PERSON} if made.given else {})
        record = PhotoRecord(**fields)
        if before := self._resumed and self._resumed.read(name):
            record.own_texts = before.by_model
            if name in self._without_record:
                record.saved = before.saved
            elif before.is_by_person or name in self.finished:
                record, before.error = before, ""
        record.made = made
        if isinstance(item, Failed):
            record.add_problem(item.reason)
        if self._run.options.tables and (digest := photo_digest(name)):
            record.photo_digest = digest
        if state:
            record.bytes, record.modified = state
        return record

    def _draw(self, record: PhotoRecord) -> PhotoRecord:
        """Write a photo's drawings, as large as they are: the model may see fewer pixels."""
        made = record.made
        if self._drawn and made and made.words and made.region:
            source, seconds = self._run.photos[record.image], self._run.options.decoding_seconds
            load = partial(load_image, sufficient_side=DRAWN_SIDE, decoding_seconds=seconds)
            with _noted(record):
                record.drawn = made.of_photo(load(source), made.region)
            for sink in self._drawn:
                with _noted(record):
                    sink.draw(record)
            record.drawn = None
        return record

    def _add(self, record: PhotoRecord) -> None:
        """Give a record to its sinks."""
        is_sure = record.is_sure(self._run.options.min_confidence)
        is_left_out = record.image in self._without_record
        for sink in () if is_left_out else [*self._drawn, *(self._others if is_sure else [])]:
            with _noted(record):
                sink.add(record)
        tables = self._tables if is_sure else self._tables[: bool(self._resumed)]
        for sink in () if is_left_out else tables:
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
