"""Gives captions to all sinks of a run; resumes from JSON lines."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path

from captioner import files
from captioner.caption.caption import DRAWN_SIDE, Caption
from captioner.errors import UserError, counted
from captioner.files import JsonObject
from captioner.library import Library, Written
from captioner.memory_limits import allowed_cores
from captioner.outcomes import MOST_WORKERS, Failed, in_background
from captioner.outputs.descriptions import Descriptions
from captioner.outputs.drawings import Gif, Overlay, Page, WordPictures
from captioner.outputs.json_lines import JsonLines
from captioner.outputs.options import CaptionSource, OutputOptions
from captioner.outputs.origin import origin_check, origin_of
from captioner.outputs.record import PERSON, Origin, PhotoRecord, file_state
from captioner.outputs.resume import Resumed
from captioner.outputs.saved_maps import SavedMaps
from captioner.outputs.sink import Run, Sink
from captioner.outputs.tables import Csv, Json, Parquet
from captioner.vision.digest import photo_digest
from captioner.vision.images import ImageSource, Report, load_image
from captioner.vision.shards import source_status

SINKS: dict[str, type[Sink] | None] = {
    "overlay": Overlay,
    "gif": Gif,
    "words": WordPictures,
    "html": Page,
    "save_maps": SavedMaps,
    "describes_photos": Descriptions,
    "output": None,  # Those of other packages: entry points of the group `captioner.outputs`.
    "jsonl": JsonLines,
    "parquet": Parquet,
    "json_file": Json,
    "csv": Csv,
}
"""The sinks by option, in the order in which a record passes them."""

FAILURES = ("unreadable", "not written")
"""Outcomes of photos for which a run ends with exit code 2."""


def sinks_of(run: Run) -> Iterator[Sink]:
    """The sinks that the options of a run ask for."""
    for option, kind in SINKS.items():
        value = getattr(run.options, option)
        if kind and value:
            yield kind(str(value), run)
        for named in () if kind else value:
            others = {point.name: point for point in entry_points(group="captioner.outputs")}
            name, _, path = named.partition("=")
            if name not in others or not path:
                known = ", ".join(sorted(others)) or "none"
                raise UserError(f"--output {named} is not NAME=PATH of one installed: {known}")
            yield others[name].load()(path, run)


class Outputs:
    """Writes captions where options say; made by `opened_outputs`.

    finished: photos whose captions an earlier run has left; what they lack is written.
    remaining: those to caption: the others, or all if a sink needs their maps.
    counts: the photos of each outcome, as `summary` names them.
    """

    def __init__(self, run: Run, source: CaptionSource) -> None:
        self.counts: Counter[str] = Counter()
        self.finished: set[str] = set()
        self._run = run
        self._sinks = [*sinks_of(run)]
        self._check_paths()
        self._origin = origin_of(source) if run.options.tables else Origin()
        self._without_record: dict[str, str] = {}  # Outcomes of photos that get none.
        self._resumed: Resumed | None = None
        tables = [sink for sink in self._sinks if isinstance(sink, JsonLines)]
        if run.options.resumes and tables:
            self._resumed = Resumed(run, tables[0], self._sinks)
            self._resumed.find(origin_check(tables[0].path, source, self._origin))
            self.finished = self._resumed.finished
            self._without_record = {each.name: "not written" for each in self._resumed.replaced}
            if by_person := len(self._resumed.by_person & run.photos.keys()):
                kept = f"{counted(by_person, 'caption')} by a person kept"
                run.note(f"{kept}; drawings and pages show the model's words")
        elif run.options.resumes:  # By --text alone.
            self.finished = {*filter(Library().has_text, run.photos)}
        done = set() if any(sink.needs_all for sink in self._sinks) else self.finished
        done = done | self._without_record.keys()
        self.remaining = {name: run.photos[name] for name in run.photos if name not in done}

    def _check_paths(self) -> None:
        options, photos = self._run.options, self._run.photos
        drawn = [sink.files(photo) for sink in self._sinks if sink.is_drawn for photo in photos]
        drawings = [pair for paths in drawn for pair in paths.items()]
        tables = [(option, path) for option, path in options.tables.items() if path != "-"]
        written = [(f"--{option}", path) for option, path in [*tables, *drawings]]
        inputs = set(map(files.real_path, photos)) if written else set()
        for option, path in written:
            if files.real_path(path) in inputs:
                raise UserError(f"{option} {path} is a photo to caption; name another file")
        files.check_files(written, options.overwrite or options.resumes, folders=("--words",))
        if not options.dry_run:
            files.remove_leftovers(Path(path) for option, path in drawings if option != "words")

    def write(self, captions: Iterable[Caption | Failed]) -> Iterator[PhotoRecord]:
        """Give captions, and what an earlier run left, to all sinks; yields the new records.

        The `error` of a record says why a photo failed, or what could not be written.
        """
        if self._resumed:
            is_all = any(not (sink.is_incremental or sink.needs_all) for sink in self._sinks)
            for record in self._resumed.records(everything=is_all):
                self._add(record)
                for problem in record.described.problems if record.described else ():
                    self._run.report(problem)
            captions = chain(self._resumed.replaced, captions)
        is_drawn = any(sink.is_drawn for sink in self._sinks)
        workers = min(allowed_cores(), MOST_WORKERS) if is_drawn else 0
        for record in in_background(self._draw, map(self._record, captions), workers):
            self._add(record)
            yield record

    def _record(self, item: Caption | Failed) -> PhotoRecord:
        """The record of a photo, a new one or that by a person, with the state when it was read."""
        name, made = item.name or "", None
        state = file_state(source_status(self._run.photos.get(name, name)))
        if isinstance(item, Caption) and item.status and file_state(item.status) != state:
            item = Failed(name, f"{name} changed while it was captioned; caption it again")
            self._without_record[name] = "unreadable"
        fields: JsonObject = {**self._origin.model_dump(exclude_unset=True), "image": name}
        if isinstance(item, Caption):
            made = item.with_keywords(self._run.options.keywords)
            fields |= made.to_dict() | ({"by": PERSON} if made.given else {})
        record = PhotoRecord(**fields)
        if before := self._resumed and self._resumed.read(name):
            record.own_texts = before.written_texts
            if before.is_by_person and name not in self._without_record:
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
        sinks = [sink for sink in self._takers(record) if sink.is_drawn]
        caption = record.made
        if sinks and caption and caption.words and caption.region:
            seconds, source = self._run.options.decoding_seconds, self._run.photos[record.image]
            try:
                photo = load_image(source, sufficient_side=DRAWN_SIDE, decoding_seconds=seconds)
                record.drawn = caption.of_photo(photo, caption.region)
            except UserError as error:
                record.add_problem(str(error))
            for sink in sinks:
                _attempt(sink.draw, record)
            record.drawn = None
        return record

    def _add(self, record: PhotoRecord) -> None:
        """Give a record to its sinks, and count its outcome."""
        for sink in self._takers(record):
            if sink.is_table:
                sink.add(record)
            else:
                _attempt(sink.add, record)
        self._count(record)

    def _takers(self, record: PhotoRecord) -> Sequence[Sink]:
        """The sinks that take a record."""
        if record.image in self._without_record:
            return ()
        if record.made and record.image in self.finished:  # Captioned again for its maps.
            return [sink for sink in self._sinks if sink.needs_all]
        is_sure = record.is_sure(self._run.options.min_confidence)
        return [sink for sink in self._sinks if is_sure or sink.keeps_all]

    def _count(self, record: PhotoRecord) -> None:
        """Count the outcome of a photo, once; of an earlier run's, if its words were written."""
        is_kept, made = record.image in self.finished, record.made
        written = record.described or Written()
        problem = record.error if made or not is_kept else "; ".join(written.problems)
        if is_kept and not problem and (made or not record.described):
            return
        outcome = "written from the table" if is_kept else "captioned"
        is_by_person = record.is_by_person and not is_kept and not (made and made.given)
        if problem:
            failed = "not written" if made or is_kept else "unreadable"
            outcome = self._without_record.get(record.image, failed)
        elif is_by_person or written.kept:
            outcome = "kept a person's words"
        elif not record.is_sure(self._run.options.min_confidence):
            outcome = "left out as less sure"
        self.counts[outcome] += 1
        self.counts["not sure"] += outcome == "captioned" and record.sure is False

    def summary(self) -> str:
        """How many photos were captioned, and how many were not; each counts once."""
        unsure = f" ({self.counts['not sure']:,} not sure)" if self.counts["not sure"] else ""
        others = ("written from the table", "kept a person's words", "left out as less sure")
        parts = [
            f"{self.counts[name]:,} {name}" for name in (*others, *FAILURES) if self.counts[name]
        ]
        return ", ".join([f"{self.counts['captioned']:,} captioned{unsure}", *parts])

    def close(self) -> None:
        """Close all sinks. One that cannot be written does not stop the others."""
        problems = []
        for sink in self._sinks:
            try:
                sink.close()
            except UserError as error:
                problems.append(str(error))
        if problems:
            raise UserError("; ".join(dict.fromkeys(problems)))


def _attempt(do: Callable[[PhotoRecord], None], record: PhotoRecord) -> None:
    try:
        do(record)
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
        stack.callback(outputs.close)
        yield outputs
