"""Writes captions as tables, drawings and a page, and beside photos; resumes from JSON lines."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from captioner import files
from captioner.caption.caption import Caption
from captioner.errors import UserError, counted
from captioner.memory_limits import allowed_cores
from captioner.outcomes import MOST_WORKERS, Failed
from captioner.outputs.descriptions import Descriptions, Written
from captioner.outputs.drawings import Drawings
from captioner.outputs.embedding import mend_torn
from captioner.outputs.json_lines import JsonLines, is_same_path
from captioner.outputs.options import OutputOptions
from captioner.outputs.records import (
    TYPES,
    Record,
    caption_of,
    file_state,
    is_unchanged,
    origin_of,
    records_csv,
    rows_of,
)
from captioner.outputs.saved_maps import saved_maps
from captioner.render.page import PageItem, save_html
from captioner.tables import AddRows, parquet_table, pyarrow_library
from captioner.vision.digest import photo_digest
from captioner.vision.images import ImageSource, Report
from captioner.vision.shards import ShardMember, source_status

FAILURES = ("unreadable", "not written")
"""Outcomes of photos for which a run ends with exit code 2."""


class Drawn(NamedTuple):
    """A caption or why there is none, its drawings by option, problems, and part of the page.

    by_model: the caption with the words that its maps are of.
    """

    item: Caption | Failed
    files: Mapping[str, str] = {}
    problems: Sequence[str] = ()
    page: PageItem | None = None
    by_model: Caption | None = None


class _Changed(Failed):
    """A photo that another program changed while it was captioned."""


class Outputs:
    """Writes captions where options say.

    Records go to `jsonl` and `parquet` as they come, and by `finish` to `json` and `csv`.

    photos: to caption, by name. report: takes sentences for people.
    finished: the photos whose captions `resume` found; it writes what they lack but for drawings.
    remaining: the others, and for `html` and `save_maps` all photos.
    workers: threads for `draw`; 0 if there is nothing to draw.
    counts: the photos of each outcome, as `summary` names them.
    """

    def __init__(
        self, options: OutputOptions, photos: Mapping[str, ImageSource], report: Report = print
    ) -> None:
        if options.parquet or (options.save_maps or "").lower().endswith(".parquet"):
            pyarrow_library()
        is_drawn = options.overlay or options.gif or options.words or options.html
        self.workers = min(allowed_cores(), MOST_WORKERS) if is_drawn else 0
        self.counts: Counter[str] = Counter()
        self._options = options
        self._photos = photos
        shards = {photo.shard for photo in photos.values() if isinstance(photo, ShardMember)}
        # When they were listed.
        self._shards = {shard: file_state(source_status(shard)) for shard in shards}
        self._embedded: set[tuple[object, ...]] = set()  # The states of photos after that.
        self._records: list[Record] = []
        self._page: list[PageItem] = []
        self._parquet, self._maps = ExitStack(), ExitStack()
        self._add_maps: Callable[[Caption], None] | None = None
        self._add_rows: AddRows | None = None
        self._drawings = Drawings(options, photos)
        self._descriptions = Descriptions(options, photos, report)
        self._lines = JsonLines(options.jsonl, options, report) if options.jsonl else None
        self._check_paths()
        self._origin = origin_of(options) if options.tables else {}
        self._by_person: dict[str, Record] = {}
        self.finished = self._resume(report)
        done = () if options.html or options.save_maps else self.finished
        self.remaining = {name: photos[name] for name in photos if name not in done}

    def _check_paths(self) -> None:
        options = self._options
        drawings = [*chain.from_iterable(map(self._drawings.files, self._photos))]
        tables = [(option, path) for option, path in options.tables.items() if path != "-"]
        written = [(f"--{option}", str(path)) for option, path in [*tables, *drawings]]
        inputs = set(map(files.real_path, self._photos))
        for option, path in written:
            if files.real_path(path) in inputs:
                raise UserError(f"{option} {path} is a photo to caption; name another file")
        is_resumed = self._lines is not None and self._lines.is_resumed
        files.check_files(written, options.overwrite or is_resumed, folders=("--words",))
        if not options.dry_run:
            files.remove_leftovers(path for option, path in drawings if option != "words")

    def _resume(self, report: Report) -> set[str]:
        """Collect the records of an earlier run; returns the photos that are finished."""
        if self._lines is None:
            is_text_kept = self._options.resumes  # Which --text alone may have, too.
            return set(filter(self._descriptions.has_text, self._photos if is_text_kept else ()))
        finished, found = set(), []
        for record in self._lines.resume(self._photos, self._origin):
            photo = record["image"]
            if photo in self._photos and "by" in record:
                self._by_person[photo] = record
            if photo not in self._photos or self._is_finished(photo, record):
                finished.add(photo)
                found.append(record)
        if self._by_person and not self._options.quiet:
            count = counted(len(self._by_person), "caption")
            report(f"{count} by a person kept; drawings and pages show the model's words")
        for record in found:  # Once all are read, as the file is rewritten meanwhile.
            self._collect(self._described(record, report))
        return finished & self._photos.keys()

    def _described(self, record: Record, report: Report) -> Record:
        """A record, by which its photo is described where the files are not there: no model."""
        photo = record["image"]
        confidence = 1.0 if "by" in record else record.get("confidence")
        places = self._descriptions.files(photo, confidence) if photo in self._photos else ()
        if _has_files(record, places) or not record.get("caption"):
            return record
        written, problems, kept, _ = self._descriptions.write_record(record)
        for problem in problems:
            report(problem)
        outcome = "not written" if problems else "written from the table"
        self.counts["kept a person's words" if kept else outcome] += 1
        record = record | {"files": record.get("files", {}) | written}
        record |= file_state(source_status(photo))
        if self._lines is not None and not self._options.dry_run:
            self._lines.write(record)
        return record

    def draw(self, item: Caption | Failed) -> Drawn:
        """Write a photo's drawings, and prepare its part of the page, for `add`; in any thread.

        The caption of the result is that of a record by a person, where there is one.
        """
        loaded, problems = None, []
        if self.workers and isinstance(item, Caption) and item.words:
            try:
                loaded = self._drawings.on_photo(item)
            except UserError as error:
                problems = [str(error)]
        item = self._checked(item)
        if isinstance(item, Failed):
            return Drawn(item)
        record, by_model = self._by_person.get(item.name or ""), item
        if record:
            item = caption_of(record, item.name or "", item.status)
        drawn = Drawn(item.with_keywords(self._options.keywords), {}, problems, by_model=by_model)
        if loaded and item.name not in self.finished:
            wanted = self._drawings.files(loaded.name or "")
            written, problems = files.write_each(wanted, partial(self._drawings.write, loaded))
            drawn = drawn._replace(files=written, problems=problems)
        if loaded and self._options.html:
            by_person = str(drawn.item) if record else ""
            drawn = drawn._replace(page=self._drawings.page_item(loaded, by_person))
        return drawn

    def add(self, drawn: Drawn) -> str:
        """Write what is beside a photo and its JSON line; collect its record for the tables.

        Returns why it failed or what could not be written, as its record has it; "" if all is well.
        A photo that another program changed meanwhile has no record.
        """
        item = self._checked(drawn.item)
        name = item.name or ""
        if isinstance(item, _Changed):
            self.counts["unreadable"] += 1
            return item.reason
        if drawn.page:
            self._page.append(drawn.page)
        if drawn.by_model and self._options.save_maps:
            if self._add_maps is None:  # Without captions, the file that is there stays.
                self._add_maps = self._maps.enter_context(saved_maps(self._options.save_maps))
            self._add_maps(drawn.by_model)
        is_finished = name in self.finished  # It was captioned for the page.
        described = Written()
        if isinstance(item, Caption) and not is_finished:
            by_person = item.given or name in self._by_person
            described = self._descriptions.write(name, item, by_person)
        failed = [item.reason] if isinstance(item, Failed) else []
        error = "; ".join(dict.fromkeys([*drawn.problems, *described.problems, *failed]))
        outcome = "captioned"
        if error:
            outcome = "unreadable" if failed else "not written"
        elif described.kept or name in self._by_person:
            outcome = "kept a person's words"
        self.counts[outcome] += bool(error) or not is_finished
        if not is_finished:
            is_unsure = isinstance(item, Caption) and item.sure is False
            self.counts["not sure"] += outcome == "captioned" and is_unsure
            record = self._record(item, {**drawn.files, **described.files}, error)
            if self._lines is not None:
                self._lines.write(record)
            self._collect(record)
        return error

    def _record(self, item: Caption | Failed, written: Mapping[str, str], error: str) -> Record:
        """A photo's record: a new one, or that by a person with what was written for it."""
        name = item.name or ""
        record: Record = dict(self._by_person.get(name, {"image": name, **self._origin}))
        record.pop("error", None)
        if isinstance(item, Caption) and name not in self._by_person:
            record |= item.to_dict()
            if item.given:
                record["by"] = "person"
        if all_written := record.get("files", {}) | written:
            record["files"] = all_written
        if error:
            record["error"] = error
        if self._options.tables and (digest := photo_digest(name)):
            record["photo_digest"] = digest
        state = self._state_read(item)
        if not state or "embed" in written:
            state = file_state(source_status(self._photos.get(name, name)))
        if "embed" in written and state:
            self._embedded.add((*state.values(),))
        return record | state

    def summary(self) -> str:
        """How many photos were captioned, and how many were not; each counts once."""
        captioned = f"{self.counts['captioned']:,} captioned"
        if unsure := self.counts["not sure"]:
            captioned += f" ({unsure:,} not sure)"
        others = ("written from the table", "kept a person's words", *FAILURES)
        parts = [f"{self.counts[name]:,} {name}" for name in others if self.counts[name]]
        return ", ".join([captioned, *parts])

    def finish(self) -> None:
        """Write JSON, CSV and page. One that cannot be written does not stop the others."""
        self._descriptions.close()
        written = [(option, Path(path)) for option, path in self._options.tables.items()]
        _, problems = files.write_each(written, self._finish)
        if problems:
            raise UserError("; ".join(dict.fromkeys(problems)))

    def _finish(self, option: str, path: Path) -> None:
        if option == "parquet":
            self._parquet.close()
        elif option == "save-maps":
            self._maps.close()
        elif option == "jsonl" and self._lines is not None:
            self._lines.drop_replaced()
        elif option == "html" and self._page:
            save_html(path, self._page, self._options.strength, self._options.title or "")
        elif option in ("json", "csv"):
            # Excel in any language splits tabs of UTF-16, and knows umlauts by its byte order mark.
            is_excel = option == "csv" and self._options.csv_for == "excel"
            form = files.json_text if option == "json" else partial(records_csv, is_excel=is_excel)
            if str(path) == "-":
                sys.stdout.write(form(self._records))
            elif self._records:
                files.write_text(path, form(self._records), "utf-16" if is_excel else "utf-8")

    def _collect(self, record: Record) -> None:
        if self._options.json_file or self._options.csv:
            self._records.append(record)
        if self._options.parquet:
            if self._add_rows is None:  # Without records, the file that is there stays.
                table = parquet_table(self._options.parquet, TYPES)
                self._add_rows = self._parquet.enter_context(table)
            self._add_rows(list(rows_of(record)))

    def _is_finished(self, photo: str, record: Record) -> bool:
        """Whether the photo has the size and time of its record, and its drawings are there."""
        are_drawn = _has_files(record, self._drawings.files(photo))
        return is_unchanged(self._photos[photo], record) and are_drawn

    def _state_read(self, item: Caption | Failed) -> Record:
        """The state of a photo's file, or of its shard, before the photo was read."""
        source = self._photos.get(item.name or "")
        if isinstance(source, ShardMember):
            return self._shards[source.shard]
        return file_state(item.status) if isinstance(item, Caption) else {}

    def _checked(self, item: Caption | Failed) -> Caption | Failed:
        """The item; a failure if another program changed the photo after it was read."""
        name, before = item.name or "", self._state_read(item)
        now = file_state(source_status(self._photos.get(name)))
        is_as_read = now == before or (*now.values(),) in self._embedded
        if isinstance(item, Failed) or not before or is_as_read:
            return item
        return _Changed(name, f"{name} changed while it was captioned; caption it again")


def _has_files(record: Record, wanted: Iterable[tuple[str, Path]]) -> bool:
    """Whether the files of these options are there, as the record has them."""
    written = record.get("files", {})
    return all(
        option in written and is_same_path(written[option], path) and os.path.exists(path)
        for option, path in wanted
    )


@contextmanager
def opened_outputs(
    options: OutputOptions, photos: Mapping[str, ImageSource], report: Report = print
) -> Iterator[Outputs]:
    """Yields outputs, finished at the end, also when interrupted; locks tables and page.

    Photos that a killed run has torn are mended.
    """
    with ExitStack() as stack:
        for path in {*options.tables.values()} - {"", "-"}:
            stack.enter_context(files.file_lock(path))
            files.remove_temporaries_of(path)
        mend_torn(photos, report, options.decoding_seconds)
        outputs = Outputs(options, photos, report)
        stack.callback(outputs.finish)
        yield outputs
