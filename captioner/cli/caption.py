"""`captioner caption`."""

from __future__ import annotations

import argparse
import os
import string
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from captioner.cli import shared_options as shared
from captioner.cli.program import on_a_line, report
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.models import LANGUAGES
from captioner.outcomes import Failed
from captioner.text.languages import ENGLISH, language_tag

if TYPE_CHECKING:
    from captioner.caption.caption import Caption
    from captioner.caption.photos import Captioned
    from captioner.vision.images import ImageSource

DESCRIPTION = """\
Captions photos. Every word has an attention map, which can be drawn.

  captioner caption photo.jpg --overlay maps.png   a panel for each word
  captioner caption photos/ 'shards/{00000..00099}.tar' --jsonl out.jsonl --resume
  find . -name '*.jpg' | captioner caption - --json -   to standard output

- is standard input, a photo or a list of names. An unreadable photo is skipped: exit code 2.
"""


def add_commands(commands: shared.Commands) -> None:
    """Add the command to the command line."""
    summary = "caption photos, draw attention maps"
    parser = shared.add_parser(
        commands, "caption", run, summary, "[PATH ...] [options]", DESCRIPTION
    )
    given = parser.add_argument_group("input")
    add = given.add_argument
    about = "photos, folders, shards, patterns in quotes, or -"
    add("paths", nargs="*", metavar="PATH", help=about)
    add("--demo", action="store_true", help="caption a photo that is on every machine")
    about = "names read from - and lines printed end in NUL"
    add("-0", "--null", action="store_true", help=about)
    shared.add_model(given)
    add("--language", metavar="TAG", help=f"of captions: {', '.join([ENGLISH, *LANGUAGES])}")
    add("--translator", metavar="MODEL", help="for --language: a model folder or name")
    shared.add_search(parser, SearchOptions)
    out = parser.add_argument_group("output")
    lines = out.add_mutually_exclusive_group()
    lines.add_argument("--format", metavar="TEXT", help="of a line, such as '{path}\\t{caption}'")
    lines.add_argument("--quiet", action="store_true", help="print nothing but errors")
    add = out.add_argument
    add("--json", metavar="FILE", help="write captions, words and log-probabilities at the end")
    add("--jsonl", metavar="FILE", help="the same, a line a photo, batch by batch")
    add("--csv", metavar="FILE", help="write captions as a table at the end")
    add("--parquet", metavar="FILE", help="the same table as Parquet")
    about = "excel: tabs and UTF-16, as Excel in any language opens"
    add("--csv-for", choices=("excel",), metavar="PROGRAM", help=about)
    add("--resume", action="store_true", help="keep what --jsonl has of unchanged photos")
    shared.add_overwrite(out, "files, texts and descriptions that are there already")
    add("--overlay", metavar="PATH", help="draw a panel a word: a picture, or a folder for many")
    add("--words", metavar="FOLDER", help="draw each word's map as a JPEG")
    add("--gif", metavar="PATH", help="animate: a .gif, or a folder for many")
    add("--html", metavar="FILE", help="write a page on which to point at words")
    about = "of the overlays, 0 to 1 (default: %(default)s)"
    add("--strength", type=float, default=0.8, metavar="X", help=about)
    about = "beside each photo, write or merge caption and nouns as photo.xmp"
    add("--xmp", action="store_const", const="lightroom", help=about)
    add(
        "--xmp-for",
        dest="xmp",
        choices=("lightroom", "digikam", "darktable"),
        metavar="PROGRAM",
        help="the same, named for lightroom, digikam or darktable",
    )
    about = "beside each photo, write the caption as photo.txt"
    add("--text", action="store_true", help=about)
    about = "write caption and nouns into the photos as XMP and IPTC, by exiftool"
    add("--embed", action="store_true", help=about)
    about = "leave less sure captions out of texts, sidecars and photos"
    add("--min-confidence", type=float, metavar="X", help=about)
    about = "say what --xmp, --text and --embed would write, and do not"
    add("--dry-run", action="store_true", help=about)
    shared.add_machine(parser, "photos in a batch", 16, precision=True)


def run(arguments: argparse.Namespace) -> int:
    """Caption the photos; 2 if one failed."""
    from captioner.cli.outputs import locked_tables

    with locked_tables(arguments):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    paths = list(arguments.paths)
    standard_input = None
    if "-" in paths:
        standard_input = sys.stdin.buffer.read()
        if arguments.null or b"\0" not in standard_input:  # A name holds no NUL, unlike a photo.
            place = paths.index("-")
            names = os.fsdecode(standard_input).split("\0" if arguments.null else "\n")
            paths[place : place + 1] = [name.rstrip("\r") for name in names if name.strip()]
            standard_input = None
    if arguments.demo:
        from captioner.demo import DEMO_PHOTO

        paths.append(str(DEMO_PHOTO))
    if not paths and arguments.paths:
        raise UserError("standard input is empty: it should be a photo or a list of names")
    if not paths:
        raise UserError("name a photo, or try --demo")

    from captioner.caption.photos import find_photos
    from captioner.cli.outputs import Outputs
    from captioner.hub import pinned
    from captioner.outcomes import in_background
    from captioner.progress import progress_bar
    from captioner.vision.find_images import passed_over_in_words

    language = arguments.language and language_tag(arguments.language, "--language")
    language = None if language == ENGLISH else language
    if arguments.translator and language is None:
        raise UserError("--translator needs --language, and not en, of which captions are")
    passed_over: Counter[str] = Counter()
    photos, failures = find_photos(paths, passed_over)
    if standard_input is not None:
        photos["-"] = standard_input
    arguments.model = pinned(arguments.model)
    outputs = Outputs(arguments, photos, language)
    lines = None
    if not (arguments.quiet or outputs.takes_standard_output):
        is_alone = len(photos) == 1 and (arguments.demo or [*photos] == arguments.paths)
        lines = CaptionLines(is_alone, arguments.format, arguments.null)
    remaining = {
        name: source
        for name, source in photos.items()
        if arguments.html or name not in outputs.finished
    }
    if not arguments.quiet:
        if passed_over:
            report(passed_over_in_words(passed_over))
        if done := len(outputs.finished):
            again = ", and captioned again for the page" if arguments.html else ""
            report(f"{done:,} of {len(photos):,} photos are captioned already{again}")
    shown = len(remaining) > arguments.batch_size and not arguments.quiet
    total = len(failures) + len(remaining)
    failed = 0
    try:
        items = _caption(remaining, language, arguments) if remaining else ()
        with progress_bar("captioning", total, "photos", shown=shown) as progress:
            drawn_items = in_background(
                lambda item: outputs.drawings.draw(item, item.name in outputs.finished),
                chain(failures, items),
                outputs.drawings.workers,
            )
            for drawn in drawn_items:
                item = drawn.item
                with progress.external_write_mode():
                    is_new = item.name not in outputs.finished
                    if lines and is_new and not isinstance(item, Failed):
                        lines.print(item.name, item.caption)
                    if reason := outputs.add(drawn):
                        failed += 1
                        report(reason)
                progress.update()
    finally:  # Also when interrupted.
        outputs.finish()
    if failed and len(photos) > 1:
        report(f"{failed} of the items named could not be captioned or written")
    return 2 if failed else 0


def _caption(
    photos: Mapping[str, ImageSource],
    language: str | None,
    arguments: argparse.Namespace,
) -> Iterator[Captioned | Failed]:
    """Captions the photos, in order."""
    from captioner.caption.photos import caption_photos, named_photos
    from captioner.models import load, load_translation

    machine = arguments.device, arguments.precision
    translate = load_translation(language, arguments.translator, *machine) if language else None
    model = load(arguments.model, *machine)
    batch_size = arguments.batch_size
    return caption_photos(
        model,
        named_photos(photos, model.preprocessing.sufficient_side),
        shared.search_options(arguments, model.search),
        batch_size,
        drawn_side=1,  # Drawings are made of the files.
        translate=translate,
        workers=model.workers_for(len(photos), batch_size),
        readers=model.readers(),
    )


FIELDS: dict[str, str | int | float] = {
    **{"path": "", "caption": "", "rank": 1},
    **{"score": 0.0, "log_probability": 0.0, "confidence": 0.0, "doubt": ""},
}
"""The fields of a line's format, with a value of their type."""


class _LineFormatter(string.Formatter):
    """Formats `FIELDS`, but not their attributes; a field without a value is empty."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if field_name not in FIELDS:
            raise UserError(f"unknown field {{{field_name}}}; the fields are {', '.join(FIELDS)}")
        return kwargs[field_name], field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        return "" if value is None else str(super().format_field(value, format_spec))


class CaptionLines:
    """Prints a line for each caption of a photo.

    is_alone: whether there is one photo, whose line is its sentence; otherwise `path: sentence`. A
        doubt of its only caption goes to standard error.
    line_format: replaces these lines, with `FIELDS` in braces, `\\t` and `\\n`.
    ends_with_null: end lines with NUL instead of a newline, and print paths as they are.
    """

    def __init__(self, is_alone: bool, line_format: str | None, ends_with_null: bool) -> None:
        self._is_alone = is_alone
        self._format = (line_format or "").replace("\\t", "\t").replace("\\n", "\n")
        try:
            _LineFormatter().format(self._format, **FIELDS)
        except (UserError, ValueError, MemoryError) as error:
            raise UserError(f"--format {line_format} is not understood: {error}") from None
        self._ends_with_null = ends_with_null
        if ends_with_null and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding=sys.getfilesystemencoding(), errors="surrogateescape")

    def print(self, path: str, caption: Caption) -> None:
        """Print the lines of a photo."""
        shown = path if self._ends_with_null else on_a_line(path)
        versions = (caption, *caption.alternatives)
        for rank, version in enumerate(versions, start=1):
            notes = [version.doubt] if version.doubt else []
            if len(versions) > 1:
                ranked_by = f"score {version.score:.2f}"
                notes = [ranked_by, f"log-probability {version.log_probability:.2f}", *notes]
            if self._format:
                values = {name: getattr(version, name, None) for name in FIELDS}
                values |= {"path": shown, "caption": version.text, "rank": rank}
                line = _LineFormatter().format(self._format, **values)
            elif self._is_alone and len(versions) == 1:
                line = version.text
                if notes:
                    report(f"{path}: {version.doubt}")
            else:
                line = version.text if self._is_alone else f"{shown}: {version.text}"
                line += f"  ({', '.join(notes)})" if notes else ""
            print(line, end="\0" if self._ends_with_null else "\n", flush=True)
