"""Writes the captions of photos as tables, drawings and a page, and resumes from JSON lines."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from captioner.background import MOST_WORKERS
from captioner.caption import Caption
from captioner.caption.caption import DRAWN_SIDE
from captioner.caption.photos import Captioned
from captioner.cli.embedding import Embedder
from captioner.cli.program import on_a_line, report
from captioner.cli.shared_options import check_files
from captioner.cli.sidecars import shared_sidecars, sidecar_paths, write_caption_text, write_xmp
from captioner.cli.xmp import Description
from captioner.csv_tables import csv_text
from captioner.demo import DEMO_PHOTO
from captioner.errors import UserError
from captioner.files import (
    check_writable,
    file_lock,
    json_text,
    real_path,
    refuse_os_errors,
    remove_temporaries,
    try_all,
    write_text,
)
from captioner.outcomes import Failed
from captioner.render import PageItem, save_html, save_word_images
from captioner.render.save import PAGE_SUFFIXES, PICTURE_SUFFIXES, WORD_PICTURE, check_suffix
from captioner.text.languages import ENGLISH, nouns
from captioner.vision.images import load_image

Record = dict[str, Any]
"""A photo's `image`, `Caption.to_dict`, `files`, `model`, `bytes` and `modified`, or `error`."""

_TABLES = ("jsonl", "json", "csv")
_OF_CAPTION = ("caption", "log_probability", "score", "confidence", "sure", "language")
_OF_PHOTO = ("model", "bytes", "modified", "error")
_BESIDE = ("xmp", "text", "embed")
_COLUMNS = ("image", "rank", *_OF_CAPTION, "overlay", "gif", "words", *_BESIDE, *_OF_PHOTO)
_ALWAYS = _COLUMNS[:5]


@contextmanager
def locked_tables(options: argparse.Namespace) -> Iterator[None]:
    """Lock the tables and the page: a second process would overwrite their records."""
    paths: dict[str, str] = {}
    for name in (*_TABLES, "html"):
        path = getattr(options, name)
        if path and path != "-":
            check_writable(f"--{name}", os.path.dirname(path))
            paths[real_path(path)] = path
    with ExitStack() as stack:
        for path in paths.values():
            stack.enter_context(file_lock(path))
        yield


class Drawn(NamedTuple):
    """A photo's caption or failure, and what was drawn: the files by option, its part of the page.

    problems: why a drawing failed.
    """

    item: Captioned | Failed
    files: Mapping[str, str] = {}
    problems: Sequence[str] = ()
    page: PageItem | None = None


class Outputs:
    """Writes captions where the options of `captioner caption` say.

    --jsonl has a line a photo, written as its batch is captioned; --json and --csv have the same
    records, written by `finish`. Drawings of photos from several folders are in folders like
    theirs.

    photos: to caption; `standard_input` is the content of "-". language: of translated captions.
    finished: the photos whose captions --resume found in the JSON lines.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        photos: Sequence[str],
        language: str | None = None,
        standard_input: bytes | None = None,
    ) -> None:
        _check_options(options, photos)
        self.finished: set[str] = set()
        self._options = options
        self._photos = photos
        self._language = language
        self._standard_input = standard_input
        self._names = _output_names(photos)
        self._records: list[Record] = []
        self._page: list[PageItem] = []
        self._has_lines = False
        self._shared_sidecars = shared_sidecars(photos, options.xmp, options.text)
        self._embedder: Embedder | None = None
        self._notes: Counter[str] = Counter()
        continues = options.resume and os.path.exists(options.jsonl)
        if continues:
            self._read_finished()
        common = [(f"--{name}", getattr(options, name)) for name in (*_TABLES, "html")]
        files = [(option, path) for option, path in common if path not in (None, "-")]
        for photo in photos:
            if photo not in self.finished:
                files += [(f"--{name}", os.fspath(path)) for name, path in self._drawings(photo)]
        check_files(files, options.overwrite or continues, folders=("--words",))
        folders = {path if option == "--words" else Path(path).parent for option, path in files}
        for folder in map(Path, folders):
            remove_temporaries(folder)

    @property
    def takes_standard_output(self) -> bool:
        """Whether a table goes to standard output, where nothing else should go then."""
        return "-" in (getattr(self._options, table) for table in _TABLES)

    @property
    def workers(self) -> int:
        """How many threads should `draw`; 0 if there is nothing to draw."""
        options = self._options
        is_drawn = options.overlay or options.gif or options.words or options.html
        return min(os.cpu_count() or 1, MOST_WORKERS) if is_drawn else 0

    def draw(self, item: Captioned | Failed) -> Drawn:
        """Write a photo's drawings, and prepare its part of the page. May run in threads."""
        if isinstance(item, Failed) or not item.caption.words or not self.workers:
            return Drawn(item)
        name = item.name
        title = "" if name == "-" else Path(name).name
        try:
            caption = self._with_photo(name, item.caption)
            page = caption.page_item(title) if self._options.html else None
        except UserError as error:
            return Drawn(item, problems=(str(error),))
        drawings = () if name in self.finished else self._drawings(name)
        write = partial(self._draw, caption=caption, title=title)
        files, problems = _write_files(drawings, write)
        return Drawn(item, files, problems, page)

    def add(self, drawn: Drawn) -> str:
        """Write what is beside a photo and its JSON line; collect its record for the tables.

        Returns why it failed or what could not be written, which the record has as well; "" if all
        went well.
        """
        item = drawn.item
        record: Record = {"image": item.name}
        if drawn.page:
            self._page.append(drawn.page)
        if item.name in self.finished:  # It was captioned for the page.
            return "; ".join(drawn.problems)
        if isinstance(item, Failed):
            error = item.reason
        else:
            record |= item.caption.to_dict()
            files, problems = self._write_beside(item.name, item.caption)
            if files := {**drawn.files, **files}:
                record["files"] = files
            error = "; ".join([*drawn.problems, *problems])
        if error:
            record["error"] = error
        self._records.append({**record, "model": self._options.model, **_state(item.name)})
        self._write_line()
        return error

    def finish(self) -> None:
        """Write JSON, CSV and page. One that cannot be written does not stop the others."""
        options, writers = self._options, []
        if self._embedder:
            self._embedder.close()
        for note, count in self._notes.items():
            if not options.quiet:
                report(f"{note}: {count:,}")
        # Excel in any language splits tabs of UTF-16, and knows umlauts by its byte order mark.
        is_for_excel = options.csv_for == "excel"
        csv_form = partial(_csv_text, delimiter="\t" if is_for_excel else ",")
        tables = (
            (options.json, json_text, "utf-8"),
            (options.csv, csv_form, "utf-16" if is_for_excel else "utf-8"),
        )
        for path, form, encoding in tables:
            if path == "-":
                writers.append(partial(sys.stdout.write, form(self._records)))
            elif path and self._records:
                writers.append(partial(write_text, path, form(self._records), encoding))
        if options.html and self._page:
            writers.append(partial(save_html, options.html, self._page, options.strength))
        try_all(writers)

    def _write_line(self) -> None:
        """Write the last record as a line; the first time all, with those of an earlier run."""
        path = self._options.jsonl
        if path == "-":
            sys.stdout.write(_lines(self._records[-1:]))
            sys.stdout.flush()
        elif path and self._has_lines:
            with (
                refuse_os_errors(f"cannot write {path}"),
                open(path, "a", encoding="utf-8", errors="backslashreplace") as file,
            ):
                file.write(_lines(self._records[-1:]))
        elif path:
            write_text(path, _lines(self._records))
            self._has_lines = True

    def _read_finished(self) -> None:
        """Keep captions of an earlier run, and find the photos that need none.

        These have the size and time of change of their record, and their files. Captions of other
        photos are kept as well.
        """
        latest = {record["image"]: record for record in _read_lines(self._options.jsonl)}
        for photo, record in latest.items():
            if "error" in record:
                continue
            self._check_origin(record)
            if photo not in self._names:
                self._records.append(record)
            elif self._is_finished(photo, record):
                self._records.append(record)
                self.finished.add(photo)

    def _is_finished(self, photo: str, record: Record) -> bool:
        files, state = record.get("files", {}), _state(photo)
        return bool(state and state.items() <= record.items()) and all(
            files.get(option) == os.fspath(path) and path.exists()
            for option, path in chain(
                self._drawings(photo), self._beside(photo, record.get("confidence"))
            )
        )

    def _check_origin(self, record: Record) -> None:
        """Raise `UserError` for a caption of another model or language."""
        model, language = record.get("model", ""), record.get("language") or ENGLISH
        is_same_model = Path(model) == Path(self._options.model)
        if not is_same_model or language != (self._language or ENGLISH):
            raise UserError(
                f"--jsonl {self._options.jsonl} has captions of the model {model} in the language "
                f"{language}; give another file, or --overwrite in place of --resume"
            )

    def _drawings(self, photo: str) -> Iterator[tuple[str, Path]]:
        """A photo's drawings, and the folder of its words, with their options."""
        options, name = self._options, self._names[photo]
        if options.overlay:
            yield "overlay", _output_path(options.overlay, name, ".png")
        if options.gif:
            yield "gif", _output_path(options.gif, name, ".gif")
        if options.words:
            yield "words", Path(options.words) / name

    def _beside(self, photo: str, confidence: float | None) -> Iterator[tuple[str, Path]]:
        """If its caption is sure enough, a photo's sidecars and itself, with their options."""
        if self._is_sure_enough(confidence):
            yield from sidecar_paths(photo, self._options.xmp, self._options.text)
            if self._options.embed:
                yield "embed", Path(photo)

    def _is_sure_enough(self, confidence: float | None) -> bool:
        return (confidence or 0) >= (self._options.min_confidence or 0)

    def _write_beside(self, photo: str, caption: Caption) -> tuple[dict[str, str], list[str]]:
        """Write `_beside`, or say what would be written."""
        if not caption.words:
            return {}, []
        if not self._is_sure_enough(caption.confidence):
            self._notes["captions that are not sure enough for sidecars, texts and photos"] += 1
        files = self._beside(photo, caption.confidence)
        if not self._options.dry_run:
            return _write_files(files, partial(self._describe, caption=caption))
        for option, path in files:
            keywords = () if option == "text" else _description(caption).keywords
            what = f"{path} would get {', '.join(map(repr, (caption.text, *keywords)))}"
            report(self._shared_sidecars.get(path, what))
        return {}, []

    def _with_photo(self, photo: str, caption: Caption) -> Caption:
        """The caption with its photo as large as drawings are; the model may see fewer pixels."""
        source = self._standard_input if photo == "-" else photo
        assert source is not None
        assert caption.region is not None
        loaded = load_image(source, sufficient_side=DRAWN_SIDE)
        return caption.of_photo(loaded, caption.region)

    def _draw(self, option: str, path: Path, caption: Caption, title: str) -> None:
        """Write one of `_drawings`."""
        strength = self._options.strength
        if option == "overlay":
            caption.overlay(path, title, strength)
        elif option == "gif":
            caption.gif(path, strength)
        else:
            self._remove_word_pictures(path)
            save_word_images(path, *caption.drawn(), strength=strength)

    def _describe(self, option: str, path: Path, caption: Caption) -> None:
        """Write one of `_beside`."""
        overwrite, description = self._options.overwrite, _description(caption)
        if problem := self._shared_sidecars.get(path):
            raise UserError(problem)
        if option == "text":
            write_caption_text(path, caption.text, overwrite)
            return
        if option == "embed":
            self._embedder = self._embedder or Embedder()
            is_set = self._embedder.embed(str(path), description, overwrite)
        else:
            is_set = write_xmp(path, description, overwrite)
        if not is_set:
            self._notes["descriptions by others that stay; --overwrite replaces them"] += 1

    def _remove_word_pictures(self, folder: Path) -> None:
        """Remove what an earlier caption left; such a folder needs --overwrite or --resume."""
        photos = set(map(real_path, self._photos))
        with refuse_os_errors(f"cannot replace the pictures in {folder}"):
            for path in folder.glob("*_*"):
                if WORD_PICTURE.fullmatch(path.name) and real_path(path) not in photos:
                    path.unlink()


def _write_files(
    files: Iterable[tuple[str, Path]], write: Callable[[str, Path], None]
) -> tuple[dict[str, str], list[str]]:
    """Write files; returns the paths by option, and the reasons of those that failed."""
    written, problems = {}, []
    for option, path in files:
        try:
            write(option, path)
            written[option] = os.fspath(path)
        except UserError as error:
            problems.append(str(error))
    return written, problems


def _description(caption: Caption) -> Description:
    """Its keywords are English nouns; `Caption.doubt` is one, for photo managers to search by."""
    keywords = nouns((caption.original or caption).words)
    if caption.doubt:
        keywords = [*keywords, caption.doubt]
    text, language = on_a_line(caption.text), caption.language or ENGLISH
    return Description(text, keywords, language, caption.confidence)


def _check_options(options: argparse.Namespace, photos: Sequence[str]) -> None:
    """Raise `UserError` for outputs that cannot be, or not together."""
    if not 0 <= options.strength <= 1:
        raise UserError(f"--strength {options.strength} is not between 0 and 1")
    beside = [f"--{name}" for name in _BESIDE if getattr(options, name)]
    if beside and {"-", str(DEMO_PHOTO)}.intersection(photos):
        raise UserError(f"{beside[0]} needs photo files of yours; - and --demo are none")
    if not beside and (options.dry_run or options.min_confidence is not None):
        raise UserError("--dry-run and --min-confidence are for --xmp, --text and --embed")
    if options.embed and not options.dry_run and not shutil.which("exiftool"):
        raise UserError(
            "--embed needs exiftool; see https://exiftool.org or, on Debian, apt install "
            "libimage-exiftool-perl"
        )
    if options.min_confidence is not None and not 0 <= options.min_confidence <= 1:
        raise UserError(f"--min-confidence {options.min_confidence} is not between 0 and 1")
    if [options.jsonl, options.json, options.csv].count("-") > 1:
        raise UserError("two tables cannot both be standard output")
    if "-" in (options.overlay, options.gif, options.words):
        raise UserError("a drawing cannot go to standard output; name a file or folder")
    if options.resume and options.jsonl in (None, "-"):
        raise UserError("--resume needs --jsonl FILE; --json and --csv are written from it")
    if options.csv_for and options.csv in (None, "-"):
        raise UserError("--csv-for needs --csv FILE")
    if options.html:
        check_suffix(options.html, PAGE_SUFFIXES)
    for path, suffixes in ((options.overlay, PICTURE_SUFFIXES), (options.gif, (".gif",))):
        if path and _names_a_file(path):
            check_suffix(path, suffixes)
            if len(photos) > 1:
                raise UserError(
                    f"{path} is one file, but there are {len(photos)} photos; give a folder, with "
                    "a slash at its end"
                )


def _names_a_file(path: str) -> bool:
    return bool(Path(path).suffix) and not path.endswith(("/", os.sep)) and not Path(path).is_dir()


def _output_path(path: str, name: str, suffix: str) -> Path:
    return Path(path) if _names_a_file(path) else Path(path) / f"{name}{suffix}"


def _output_names(photos: Sequence[str]) -> dict[str, str]:
    """The path of every photo below the folder that holds all of them, without its suffix.

    Photos that would share a name keep their suffix. Names that differ in case alone count as
    shared, as on many file systems. `-` is standard input.
    """
    folders = {photo: Path(os.path.abspath(photo)).parent.parts[1:] for photo in photos}
    folders.pop("-", None)
    is_common = [len(set(level)) == 1 for level in zip(*folders.values(), strict=False)]
    top = [*is_common, False].index(False)
    names = {}
    for photo in photos:
        stem = "standard_input" if photo == "-" else Path(photo).stem
        names[photo] = os.path.join(*folders.get(photo, ())[top:], stem)
    shared = Counter(map(str.casefold, names.values()))
    return {
        photo: name + Path(photo).suffix if shared[name.casefold()] > 1 else name
        for photo, name in names.items()
    }


def _state(photo: str) -> Record:
    """A photo file's size and time of change; empty for standard input and missing files."""
    try:
        status = os.stat(photo)
    except (OSError, ValueError):
        return {}
    changed = datetime.fromtimestamp(status.st_mtime, timezone.utc)
    return {"bytes": status.st_size, "modified": changed.isoformat()}


def _lines(records: Sequence[Record]) -> str:
    return "".join(json_text(record, indent=None) for record in records)


def _csv_text(records: Sequence[Record], delimiter: str) -> str:
    """One row a caption, with the columns that have a value."""
    rows = []
    for record in records:
        of_photo = {key: record.get(key) for key in ("image", *_OF_PHOTO)}
        for rank, version in enumerate([record, *record.get("alternatives", [])], start=1):
            of_caption = {key: version.get(key) for key in _OF_CAPTION}
            rows.append({**of_photo, **record.get("files", {}), "rank": rank, **of_caption})
    columns = [
        column
        for column in _COLUMNS
        if column in _ALWAYS or any(row.get(column) is not None for row in rows)
    ]
    return csv_text(rows, columns, delimiter)


def _read_lines(path: str) -> list[Record]:
    """The records of JSON lines; a last line without its end, of a killed run, is left out."""
    with refuse_os_errors(f"cannot read {path}"):
        whole = Path(path).read_bytes().rpartition(b"\n")[0]
    try:
        records: list[Record] = [json.loads(line) for line in whole.splitlines() if line.strip()]
        if all(isinstance(record["image"], str) for record in records):
            return records
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise UserError(
        f"--jsonl {path} holds no results of `captioner caption`; --overwrite replaces it"
    )
