"""`captioner caption`."""

from __future__ import annotations

import argparse
import os
import string
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from captioner.cli.report import on_a_line, report
from captioner.cli.shared_options import (
    Commands,
    add_machine,
    add_model,
    add_overwrite,
    add_parser,
    add_search,
    refuse,
    search_options,
)
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.models import LANGUAGES
from captioner.outcomes import Failed
from captioner.text.languages import ENGLISH, language_tag

if TYPE_CHECKING:
    from captioner.caption import Caption
    from captioner.cli.outputs import Outputs

DESCRIPTION = """\
Captions photos. Every word has an attention map, which can be drawn.

  captioner caption photo.jpg --overlay maps.png   a panel for each word
  captioner caption photos/ 'more/*.png' --jsonl out.jsonl --resume
  find . -name '*.jpg' | captioner caption - --json -   to standard output

- is standard input, a photo or a list of names. Low confidence is "not sure".
An unreadable photo is skipped: exit code 2. Ctrl-C keeps finished captions.
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    summary = "caption photos, draw attention maps"
    parser = add_parser(commands, "caption", summary, DESCRIPTION, "[PATH ...] [options]")
    given = parser.add_argument_group("input")
    given.add_argument(
        "paths", nargs="*", metavar="PATH", help="photos, folders, patterns in quotes, or -"
    )
    given.add_argument(
        "--demo", action="store_true", help="caption a photo that is on every machine"
    )
    given.add_argument(
        "-0",
        "--null",
        action="store_true",
        help="names read from - and lines printed end in NUL",
    )
    add_model(given)
    known = ", ".join([ENGLISH, *LANGUAGES])
    given.add_argument("--language", metavar="TAG", help=f"of captions: {known}")
    given.add_argument(
        "--translator", metavar="MODEL", help="for --language: a model folder or name"
    )
    add_search(parser, SearchOptions)
    out = parser.add_argument_group("output")
    lines = out.add_mutually_exclusive_group()
    lines.add_argument("--format", metavar="TEXT", help="of a line, such as '{path}\\t{caption}'")
    lines.add_argument("--quiet", action="store_true", help="print nothing but errors")
    out.add_argument(
        "--json", metavar="FILE", help="write captions, words and log-probabilities at the end"
    )
    out.add_argument("--jsonl", metavar="FILE", help="the same, a line as each comes")
    out.add_argument("--csv", metavar="FILE", help="write captions as a table at the end")
    out.add_argument(
        "--resume", action="store_true", help="keep what --jsonl has of unchanged photos"
    )
    add_overwrite(out, "files, texts and descriptions that are there already")
    out.add_argument(
        "--overlay", metavar="PATH", help="draw a panel a word: a picture, or a folder for many"
    )
    out.add_argument("--words", metavar="FOLDER", help="draw each word's map as a PNG")
    out.add_argument("--gif", metavar="PATH", help="animate: a .gif, or a folder for many")
    out.add_argument("--html", metavar="FILE", help="write a page on which to point at words")
    out.add_argument(
        "--strength",
        type=float,
        default=0.8,
        metavar="X",
        help="of the overlays, 0 to 1 (default: %(default)s)",
    )
    out.add_argument(
        "--xmp",
        action="store_const",
        const="lightroom",
        help="beside each photo, write or merge caption and nouns as photo.xmp",
    )
    out.add_argument(
        "--xmp-for",
        dest="xmp",
        choices=("lightroom", "digikam", "darktable"),
        metavar="PROGRAM",
        help="the same, named for lightroom, digikam or darktable",
    )
    out.add_argument(
        "--text", action="store_true", help="beside each photo, write the caption as photo.txt"
    )
    add_machine(parser, "photos in a batch", 16, precision=True)
    parser.set_defaults(run=run)


_OUTPUTS = (
    *("json", "jsonl", "csv", "html", "overlay", "gif", "words"),
    *("strength", "resume", "overwrite"),
)
"""The options that are fields of `Outputs`."""


def run(arguments: argparse.Namespace) -> int:
    """Caption the photos; 2 if one failed."""
    paths = list(arguments.paths)
    given = None
    if "-" in paths:
        given = _standard_input()
        if arguments.null or b"\0" not in given:  # A name holds no NUL, unlike a photo.
            place = paths.index("-")
            paths[place : place + 1] = _names(given, "\0" if arguments.null else "\n")
            given = None
    if arguments.demo:
        from captioner.demo import DEMO_PHOTO

        paths.append(str(DEMO_PHOTO))
    if not paths and arguments.paths:
        raise UserError("standard input is empty: it should be a photo or a list of names")
    if not paths:
        raise UserError("name a photo, or try --demo")

    from captioner.caption.captioner import photo_paths
    from captioner.cli.outputs import Outputs
    from captioner.cli.sidecars import Sidecars
    from captioner.vision.find_images import passed_over_in_words

    language = _language(arguments)
    passed_over: Counter[str] = Counter()
    photos, failures = photo_paths(paths, passed_over)
    outputs = Outputs(
        photos,
        sidecars=Sidecars(arguments.xmp, arguments.text, arguments.overwrite),
        language=language,
        model=arguments.model,
        standard_input=given or b"",
        **{name: getattr(arguments, name) for name in _OUTPUTS},
    )
    if outputs.takes_standard_output:
        refuse(arguments, ["format"], "with a table on standard output")
    lines = None
    if not (arguments.quiet or outputs.takes_standard_output):
        is_alone = len(photos) == 1 and (arguments.demo or photos == arguments.paths)
        lines = CaptionLines(is_alone, arguments.format, arguments.null)
    for failure in failures:
        report(failure.reason)
        outputs.add(failure)
    if passed_over and not arguments.quiet:
        report(passed_over_in_words(passed_over))
    remaining = [photo for photo in photos if photo not in outputs.finished]
    if outputs.finished and not arguments.quiet:
        report(f"{len(photos) - len(remaining):,} of {len(photos):,} photos are captioned already")
    failed = len(failures)
    try:
        if remaining:
            failed += _caption(remaining, given, language, arguments, outputs, lines)
    finally:  # Also when interrupted.
        outputs.finish()
    if failed and len(photos) > 1:
        report(f"{failed} of the items named could not be captioned or written")
    return 2 if failed else 0


def _caption(
    photos: Sequence[str],
    given: bytes | None,
    language: str | None,
    arguments: argparse.Namespace,
    outputs: Outputs,
    lines: CaptionLines | None,
) -> int:
    """Caption the photos; return how many failed. given: the photo `-`."""
    from captioner import load
    from captioner.background import workers_for
    from captioner.caption.captioner import Captioned, caption_photos, named_photos
    from captioner.progress import progress_bar

    translate = _translation(language, arguments) if language else None
    model = load(arguments.model, arguments.device, arguments.precision)
    search = search_options(arguments, model.search)
    batch_size = arguments.batch_size
    items = caption_photos(
        model,
        named_photos(photos, model.preprocessing.sufficient_side, given),
        search,
        batch_size,
        drawn_side=1,  # Drawings are made of the files.
        translate=translate,
        workers=workers_for(model.device, len(photos), batch_size),
    )
    failed = 0
    shown = len(photos) > batch_size and not arguments.quiet
    with progress_bar("captioning", len(photos), "photos", shown=shown) as progress:
        for item in items:
            with progress.external_write_mode():
                if lines and isinstance(item, Captioned):
                    lines.print(item.name, item.caption)
                try:
                    outputs.add(item)
                    reason = item.reason if isinstance(item, Failed) else ""
                except UserError as error:
                    reason = str(error)
                if reason:
                    failed += 1
                    report(reason)
            progress.update()
    return failed


def _language(arguments: argparse.Namespace) -> str | None:
    """The tag of --language; None for English, as captions are. Refuses a lone --translator."""
    language = arguments.language and language_tag(arguments.language, "--language")
    if language in (None, ENGLISH):
        without = "with --language en" if language else "without --language"
        refuse(arguments, ["translator"], without)
        return None
    return language


def _translation(
    language: str, arguments: argparse.Namespace
) -> Callable[[list[Caption]], list[Caption]]:
    """Translates captions into a language."""
    name = arguments.translator or LANGUAGES.get(language.partition("-")[0])
    if name is None:
        known = ", ".join(LANGUAGES)
        raise UserError(f"--language {language} needs a --translator; the package has {known}")

    from captioner import load_translator
    from captioner.translate.translated_captions import check_aligns, translate_captions

    translator = load_translator(name, arguments.device, arguments.precision)
    check_aligns(translator)
    return partial(translate_captions, translator=translator, language=language)


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise UserError("standard input is closed: there is nothing to read for -")
    return sys.stdin.buffer.read()


def _names(content: bytes, separator: str) -> list[str]:
    """The paths of a list; file names need not be UTF-8."""
    names = os.fsdecode(content).split(separator)
    if separator == "\n":
        names = [name.removesuffix("\r") for name in names]
    return [name for name in names if name.strip()]


FIELDS: dict[str, str | int | float] = {
    **{"path": "", "caption": "", "rank": 1},
    **{"score": 0.0, "log_probability": 0.0, "confidence": 0.0, "doubt": ""},
}
"""The fields of a line's format, with a value of their type."""


class CaptionLines:
    """Prints a line for each caption of a photo.

    is_alone: whether there is one photo, whose line is its sentence; otherwise `path: sentence`. A
        doubt of its only caption goes to standard error.
    line_format: replaces these lines, with `FIELDS` in braces, `\\t` and `\\n`. Fields without a
        value are empty.
    ends_with_null: end lines with NUL instead of a newline, and print paths as they are.
    """

    def __init__(self, is_alone: bool, line_format: str | None, ends_with_null: bool) -> None:
        self._is_alone = is_alone
        self._format = line_format and _checked(line_format)
        self._ends_with_null = ends_with_null
        if ends_with_null and hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(encoding=sys.getfilesystemencoding(), errors="surrogateescape")

    def print(self, path: str, caption: Caption) -> None:
        """Print the lines of a photo."""
        shown = path if self._ends_with_null else on_a_line(path)
        versions = (caption, *caption.alternatives)
        for rank, version in enumerate(versions, start=1):
            if self._format:
                line = self._format.format_map(_values(shown, version, rank))
            else:
                line = "" if self._is_alone else f"{shown}: "
                line += version.text
                notes = [version.doubt] if version.doubt else []
                if len(versions) > 1:
                    notes.insert(0, f"score {version.score:.2f}")
                    notes.insert(1, f"log-probability {version.log_probability:.2f}")
                if notes and self._is_alone and len(versions) == 1:
                    report(f"{path}: {version.doubt}")
                elif notes:
                    line += f"  ({', '.join(notes)})"
            print(line, end="\0" if self._ends_with_null else "\n", flush=True)


class _Absent:
    """A field without a value: empty in every format."""

    def __format__(self, form: str) -> str:
        return ""


def _values(path: str, caption: Caption, rank: int) -> dict[str, Any]:
    values = {name: getattr(caption, name, None) for name in FIELDS}
    values.update(path=path, caption=caption.text, rank=rank)
    return {name: _Absent() if value is None else value for name, value in values.items()}


def _checked(line_format: str) -> str:
    """The format with `\\t` and `\\n` replaced; raises `UserError` for one not understood."""
    shown = f"--format {line_format}"
    replaced = line_format.replace("\\t", "\t").replace("\\n", "\n")
    try:
        for _, field, form, conversion in string.Formatter().parse(replaced):
            if field is not None and field not in FIELDS:
                known = ", ".join(FIELDS)
                raise UserError(f"{shown} has an unknown field {{{field}}}; the fields are {known}")
            if conversion or (form and "{" in form):
                raise ValueError("a field takes a width or precision only, as {score:.2f}")
        replaced.format_map(FIELDS)
    except (ValueError, MemoryError) as error:
        raise UserError(f"{shown} is not understood: {error}") from None
    return replaced
