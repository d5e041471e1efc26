"""Writes captions as tables, drawings and a page, and resumes from JSON lines."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from captioner import files
from captioner.caption.caption import DRAWN_SIDE, Caption
from captioner.cli.descriptions import Descriptions, Written
from captioner.cli.output_options import OutputOptions, names_a_file
from captioner.cli.program import report
from captioner.cli.records import (
    TYPES,
    JsonLines,
    Record,
    file_state,
    is_same_path,
    origin_of,
    records_csv,
    rows_of,
)
from captioner.cli.shared_options import check_files
from captioner.errors import UserError, counted
from captioner.outcomes import MOST_WORKERS, Failed
from captioner.render.overlay import WORD_PICTURE, save_word_images
from captioner.render.page import PageItem, save_html
from captioner.tables import AddRows, parquet_table
from captioner.text.tokenizer import tokenize
from captioner.vision.images import ImageSource, load_image
from captioner.vision.shards import ShardMember, source_status

FAILURES = ("unreadable", "not written")
"""Outcomes of photos for which a run ends with exit code 2."""


class _Drawings(NamedTuple):
    """A photo's drawings by option, why any failed, and its part of the page."""

    files: Mapping[str, str] = {}
    problems: Sequence[str] = ()
    page: PageItem | None = None


class _Changed(Failed):
    """A photo that another program changed while it was captioned."""


class Outputs:
    """Writes captions where options say.

    Records go to `jsonl` and `parquet` as they come, and by `finish` to `json` and `csv`.

    photos: to caption, by name.
    finished: the photos whose captions `resume` found in the JSON lines.
    remaining: the others, and for `html` all photos.
    workers: threads for `draw`; 0 if there is nothing to draw.
    counts: the photos of each outcome, as `summary` names them.
    """

    def __init__(self, options: OutputOptions, photos: Mapping[str, ImageSource]) -> None:
        for path in filter(names_a_file, filter(None, (options.overlay, options.gif))):
            if (count := len(photos)) > 1:
                raise UserError(f"{path} is one file for {count} photos; give a folder, as maps/")
        is_drawn = options.overlay or options.gif or options.words or options.html
        self.finished: set[str] = set()
        self.workers = min(os.cpu_count() or 1, MOST_WORKERS) if is_drawn else 0
        self.counts: Counter[str] = Counter()
        self._options = options
        self._photos = photos
        self._names = output_names(photos)
        self._inputs = {files.real_path(photo) for photo in photos}
        shards = {photo.shard for photo in photos.values() if isinstance(photo, ShardMember)}
        self._shards = {shard: source_status(shard) for shard in shards}  # When they were listed.
        self._embedded: set[tuple[int, int]] = set()  # The states of photos after that.
        self._records: list[Record] = []
        self._by_person: dict[str, Record] = {}
        self._drawn: dict[str, _Drawings] = {}  # Until `add` takes it.
        self._page: list[PageItem] = []
        self._parquet = ExitStack()
        self._add_rows: AddRows | None = None
        self._descriptions = Descriptions(options, photos) if options.describes_photos else None
        self._lines = JsonLines(options.jsonl, options.resume) if options.jsonl else None
        self._check_paths(options.overwrite or (self._lines is not None and self._lines.is_resumed))
        self._origin = origin_of(options) if any(options.tables()) else {}
        if self._lines is not None:
            self._resume(self._lines)
        elif options.resume and self._descriptions:
            self.finished = {photo for photo in photos if self._descriptions.has_text(photo)}
        done = () if options.html else self.finished
        self.remaining = {name: photos[name] for name in photos if name not in done}

    def _resume(self, lines: JsonLines) -> None:
        """Collect the records of finished photos and of others than the run's."""
        for record in lines.resume(self._photos, self._options, self._origin):
            photo = record["image"]
            if photo in self._photos and "by" in record:
                self._by_person[photo] = record
            if photo not in self._photos or self._is_finished(photo, record):
                self.finished |= {photo} & self._photos.keys()
                self._collect(record)
        if self._by_person and not self._options.quiet:
            count = counted(len(self._by_person), "caption")
            report(f"{count} by a person kept; drawings and pages show the model's words")

    def _check_paths(self, overwrite: bool) -> None:
        drawings = [*chain.from_iterable(map(self._options.drawings, self._names.values()))]
        tables = [(option, path) for option, path in self._options.tables() if path != "-"]
        written = [(f"--{option}", str(path)) for option, path in [*tables, *drawings]]
        for option, path in written:
            if files.real_path(path) in self._inputs:
                raise UserError(f"{option} {path} is a photo to caption; name another file")
        check_files(written, overwrite, folders=("--words",))
        if not self._options.dry_run:
            files.remove_leftovers(path for option, path in drawings if option != "words")

    def draw(self, item: Caption | Failed) -> Caption | Failed:
        """Write a photo's drawings, and prepare its part of the page, for `add`; in any thread.

        Returns the caption, that of the record in place of one by a person, or why there is none.
        """
        item = self._checked(item)
        if isinstance(item, Failed) or item.name is None:
            return item
        if item.words and self.workers:
            self._drawn[item.name] = self._draw(item.name, item)
        record = self._by_person.get(item.name)
        return _in_words_of(record, item) if record else item

    def _draw(self, name: str, caption: Caption) -> _Drawings:
        source = self._photos[name]
        title = "" if name == "-" else Path(name).name
        try:  # The photo as large as drawings are; the model may see fewer pixels.
            photo = load_image(source, sufficient_side=DRAWN_SIDE)
        except UserError as error:
            return _Drawings(problems=[str(error)])
        if isinstance(self._checked(caption), Failed):
            return _Drawings()
        assert caption.region is not None
        caption = caption.of_photo(photo, caption.region)
        page = None
        if self._options.html:
            folder = os.path.dirname(self._options.html) or os.curdir
            path = Path(os.path.relpath(name, folder)).as_posix() if isinstance(source, str) else ""
            record = self._by_person.get(name)
            page = caption.page_item(f"{title}: {record.get('caption', '')}" if record else title)
            heading = os.path.dirname(self._names[name])
            page = replace(page, path=path or title, folder=heading)
        drawings = () if name in self.finished else self._options.drawings(self._names[name])
        write = partial(self._write_drawing, caption=caption, title=title)
        written, problems = files.write_each(drawings, write)
        return _Drawings(written, problems, page)

    def add(self, item: Caption | Failed) -> str:
        """Write what is beside a photo and its JSON line; collect its record for the tables.

        Returns why it failed or what could not be written, as its record has it; "" if all is well.
        A photo that another program changed meanwhile has no record.
        """
        item = self._checked(item)
        name = item.name
        assert name is not None  # Captions of `caption_photos` have one.
        drawn = self._drawn.pop(name, _Drawings())
        if isinstance(item, _Changed):
            self.counts["unreadable"] += 1
            return item.reason
        if drawn.page:
            self._page.append(drawn.page)
        old = self._by_person.get(name)
        status = self._status_read(item)
        described = Written({}, [])
        if isinstance(item, Caption) and self._descriptions and name not in self.finished:
            described = self._descriptions.write(name, item, old is not None)
        failed = [item.reason] if isinstance(item, Failed) else []
        error = "; ".join(dict.fromkeys([*drawn.problems, *described.problems, *failed]))
        outcome = "kept a person's words" if old or described.kept else "captioned"
        if error:
            outcome = "unreadable" if failed else "not written"
        if name in self.finished:  # It was captioned for the page.
            self.counts[outcome] += bool(error)
            return error
        self.counts[outcome] += 1
        self.counts["not sure"] += outcome == "captioned" and getattr(item, "sure", None) is False
        record: Record = dict(old or {"image": name, **self._origin})
        record.pop("error", None)
        if isinstance(item, Caption) and not old:
            record |= item.to_dict()
        if written := record.get("files", {}) | drawn.files | described.files:
            record["files"] = written
        if error:
            record["error"] = error
        if status is None or "embed" in described.files:
            status = source_status(self._photos.get(name, name))
        if "embed" in described.files and status:
            self._embedded.add(_state(status))
        record |= file_state(status)
        if self._lines is not None:
            self._lines.write(record)
        self._collect(record)
        return error

    def summary(self) -> str:
        """How many photos were captioned, and how many were not; each counts once."""
        captioned = f"{self.counts['captioned']:,} captioned"
        if unsure := self.counts["not sure"]:
            captioned += f" ({unsure:,} not sure)"
        others = ("kept a person's words", *FAILURES)
        parts = [f"{self.counts[name]:,} {name}" for name in others if self.counts[name]]
        return ", ".join([captioned, *parts])

    def finish(self) -> None:
        """Write JSON, CSV and page. One that cannot be written does not stop the others."""
        if self._descriptions:
            self._descriptions.close()
        written = [(option, Path(path)) for option, path in self._options.tables()]
        _, problems = files.write_each(written, self._finish)
        if problems:
            raise UserError("; ".join(dict.fromkeys(problems)))

    def _finish(self, option: str, path: Path) -> None:
        if option == "parquet":
            self._parquet.close()
        elif option == "jsonl" and self._lines is not None and self._lines.is_resumed:
            self._lines.drop_replaced()
        elif option == "html" and self._page:
            save_html(path, self._page, self._options.strength)
        elif option in ("json", "csv"):
            # Excel in any language splits tabs of UTF-16, and knows umlauts by its byte order mark.
            is_excel = option == "csv" and self._options.csv_for == "excel"
            form = files.json_text if option == "json" else partial(records_csv, is_excel=is_excel)
            if str(path) == "-":
                sys.stdout.write(form(self._records))
            elif self._records:
                files.write_text(path, form(self._records), "utf-16" if is_excel else "utf-8")

    def _write_drawing(self, option: str, path: Path, caption: Caption, title: str) -> None:
        strength = self._options.strength
        if option == "overlay":
            caption.overlay(path, title, strength)
        elif option == "gif":
            caption.gif(path, strength)
        else:
            with files.refuse_os_errors(f"cannot replace the pictures in {path}"):
                for picture in path.glob("*_*"):  # Those of an earlier caption.
                    is_photo = files.real_path(picture) in self._inputs
                    if WORD_PICTURE.fullmatch(picture.name) and not is_photo:
                        picture.unlink()
            photo, region, drawn = caption.drawn()
            save_word_images(path, photo, region, drawn, strength)

    def _collect(self, record: Record) -> None:
        if self._options.json or self._options.csv:
            self._records.append(record)
        if self._options.parquet:
            if self._add_rows is None:  # Without records, the file that is there stays.
                table = parquet_table(self._options.parquet, TYPES)
                self._add_rows = self._parquet.enter_context(table)
            self._add_rows(list(rows_of(record)))

    def _is_finished(self, photo: str, record: Record) -> bool:
        """Whether the photo has the size and time of its record, and its files are there."""
        written = record.get("files", {})
        state = file_state(source_status(self._photos[photo])).items()
        wanted = self._options.drawings(self._names[photo])
        if self._descriptions and record.get("caption"):
            confidence = 1.0 if "by" in record else record.get("confidence")
            wanted = chain(wanted, self._descriptions.files(photo, confidence))
        is_unchanged = bool(state) and state <= record.items()
        return is_unchanged and all(
            option in written and is_same_path(written[option], path) and os.path.exists(path)
            for option, path in wanted
        )

    def _status_read(self, item: Caption | Failed) -> os.stat_result | None:
        """The status of a photo's file, or of its shard, before the photo was read."""
        source = self._photos.get(item.name or "")
        if isinstance(source, ShardMember):
            return self._shards[source.shard]
        return item.status if isinstance(item, Caption) else None

    def _checked(self, item: Caption | Failed) -> Caption | Failed:
        """The item; a failure if another program changed the photo after it was read."""
        before = self._status_read(item)
        if isinstance(item, Failed) or before is None or item.name is None:
            return item
        now = source_status(self._photos.get(item.name))
        if now and (_state(now) == _state(before) or _state(now) in self._embedded):
            return item
        return _Changed(item.name, f"{item.name} changed while it was captioned; caption it again")


def _in_words_of(record: Record, caption: Caption) -> Caption:
    """A caption with the words of a record by a person."""
    text = " ".join(record.get("caption", "").split())
    words = tuple(text.split() if caption.language else tokenize(text))
    original = caption.language and replace(caption, words=())  # Keywords are English.
    caption = replace(caption, text=text, words=words, original=original or None, alternatives=())
    return replace(caption, confidence=1.0, sure=None)


def _state(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


@contextmanager
def opened_outputs(options: OutputOptions, photos: Mapping[str, ImageSource]) -> Iterator[Outputs]:
    """Yields outputs, finished at the end, also when interrupted; locks tables and page."""
    with ExitStack() as stack:
        for path in {path for _, path in options.tables()} - {"", "-"}:
            stack.enter_context(files.file_lock(path))
            files.remove_temporaries_of(path)
        outputs = Outputs(options, photos)
        stack.callback(outputs.finish)
        yield outputs


def output_names(photos: Iterable[str]) -> dict[str, str]:
    """The path of every photo below the folder that holds all of them, without its suffix.

    Photos whose names differ in suffix or case alone keep their suffix; `-` is standard input.
    """
    folders = [os.path.dirname(os.path.abspath(photo)) for photo in photos if photo != "-"]
    try:
        top = os.path.commonpath(folders) if folders else ""
        whole = {photo: os.path.relpath(photo, top) for photo in photos}
    except ValueError:  # Two drives of Windows.
        whole = {photo: os.path.abspath(photo).replace(":", "") for photo in photos}
    whole |= {"-": "standard_input"} if "-" in whole else {}
    names = {photo: os.path.splitext(name)[0] for photo, name in whole.items()}
    taken = Counter(name.casefold() for name in chain(whole.values(), names.values()))
    ambiguous = [photo for photo, name in names.items() if taken[name.casefold()] > 1]
    return names | {photo: whole[photo] for photo in ambiguous}
