"""`captioner caption`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from itertools import chain
from string import Formatter
from typing import TYPE_CHECKING, Any

from captioner.cli import shared_options as shared
from captioner.cli.output_options import OutputOptions
from captioner.cli.program import on_a_line, report
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError
from captioner.files import UNMARKED_WIDE, as_utf8, decode_text
from captioner.loading import LANGUAGES
from captioner.model_folders import DEMO_PHOTO, pinned
from captioner.outcomes import Failed
from captioner.text.languages import ENGLISH, is_english, language_tag

if TYPE_CHECKING:
    from captioner.caption.caption import Caption
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
    usage, summary = "caption [PATH ...] [options]", "caption photos, draw attention maps"
    parser, add = shared.add_parser(commands, run, usage, summary, DESCRIPTION)
    add("paths", "PATH", "photos, folders, shards, patterns in quotes, or -", nargs="*")
    add("--demo", "", "caption the packaged photo")
    add("-0 --null", "", "names read from - and lines printed end in NUL")
    add("--model", "MODEL", shared.MODEL, default="default")
    add("--language", "TAG", f"of captions: {', '.join([ENGLISH, *LANGUAGES])}")
    add("--translator", "MODEL", "for --language: a model folder or name")
    shared.add_search(parser, SearchOptions)
    group = parser.add_argument_group("output")
    add = partial(shared.add_option, group)
    for field in fields(OutputOptions):
        if field.metadata:
            add(f"--{field.name.replace('_', '-')}", **field.metadata)
    about = "beside each photo, write or merge caption and nouns as photo.xmp"
    add("--xmp", "", about, action="store_const", const="lightroom")
    choices = ("lightroom", "digikam", "darktable")
    add("--xmp-for", "PROGRAM", f"the same, for {', '.join(choices)}", dest="xmp", choices=choices)
    shared.add_machine(parser, "photos in a batch", 16)
    about = "limit for decoding a large or slow photo (default: 20)"
    shared.add_option(parser, "--decoding-seconds", "SECONDS", about, type=shared.positive)


def run(arguments: argparse.Namespace) -> int:
    """Caption the photos; 2 if one failed."""
    paths, standard_input = _read_paths(arguments)

    from captioner.cli.descriptions import SHARED
    from captioner.cli.embedding import mend_torn
    from captioner.cli.outputs import FAILURES, opened_outputs
    from captioner.outcomes import in_background
    from captioner.progress import counted_by, progress_bar
    from captioner.tables import pyarrow_library
    from captioner.vision.decoding_process import DecodingPool
    from captioner.vision.images import ignore
    from captioner.vision.shards import find_photos

    options = output_options(arguments)
    if arguments.format:
        formatted(arguments.format, dict.fromkeys(FIELDS))  # Refuses what is no format.
    if arguments.translator and not options.language:
        raise UserError("--translator needs --language, and another one than en")
    if arguments.parquet:
        pyarrow_library()
    DecodingPool.seconds = arguments.decoding_seconds or DecodingPool.seconds
    photos, failures = find_photos(paths, note=ignore if arguments.quiet else report)
    mend_torn(photos)
    if standard_input is not None:
        photos["-"] = standard_input
    options = replace(options, model=pinned(options.model))
    is_quiet = arguments.quiet or "-" in (arguments.jsonl, arguments.json, arguments.csv)
    is_alone = len(photos) == 1 and (arguments.demo or [*photos] == arguments.paths)
    if arguments.null:  # Any file name is printed as it is.
        assert isinstance(sys.stdout, io.TextIOWrapper)
        sys.stdout.reconfigure(encoding=sys.getfilesystemencoding(), errors="surrogateescape")
    with opened_outputs(options, photos) as outputs:
        if outputs.finished and not arguments.quiet:
            report(f"{len(outputs.finished):,} of {len(photos):,} photos are captioned already")
        remaining = outputs.remaining
        items = chain(failures, _captions(arguments, options, remaining))
        has_bar = len(remaining) > arguments.batch_size and not arguments.quiet
        is_terminal = sys.stdout.isatty() and sys.stderr.isatty()
        if has_bar and is_terminal and any(options.tables()) and not arguments.format:
            is_quiet = True  # The bar alone: thousands of lines would scroll by.
        total = len(failures) + len(remaining)
        with progress_bar("captioning", total, "photos", shown=has_bar) as progress:
            drawn = in_background(outputs.draw, items, outputs.workers)
            for item in counted_by(progress, drawn):
                with progress.external_write_mode():
                    is_shown = not is_quiet and item.name not in outputs.finished
                    if is_shown and not isinstance(item, Failed):
                        _print_captions(item, arguments, is_alone)
                    if (reason := outputs.add(item)) and reason != SHARED:
                        report(reason)
    if outputs.counts.total() and len(photos) + len(failures) > 1 and not arguments.quiet:
        report(outputs.summary())
    return 2 if any(outputs.counts[outcome] for outcome in FAILURES) else 0


def _captions(
    arguments: argparse.Namespace, options: OutputOptions, photos: Mapping[str, ImageSource]
) -> Iterator[Caption | Failed]:
    """Load the models, unless there are no photos, and caption."""
    from captioner.caption.captioner import caption_photos
    from captioner.loading import load, load_translation

    if not photos:
        return iter(())
    machine = shared.machine(arguments, arguments.sample)
    translate = None
    if options.language:
        translate = load_translation(options.language, arguments.translator, **machine)
    model = load(options.model, **machine)
    search = model.search.override(**options.search)
    return caption_photos(model, photos.items(), search, arguments.batch_size, translate)


def _print_captions(caption: Caption, arguments: argparse.Namespace, is_alone: bool) -> None:
    assert caption.name is not None
    path = caption.name if arguments.null else on_a_line(caption.name)
    for line in caption_lines(path, caption, is_alone, arguments.format):
        print(line, end="\0" if arguments.null else "\n", flush=True)


def output_options(arguments: argparse.Namespace) -> OutputOptions:
    """The options that say where captions go."""
    names = {field.name for field in fields(OutputOptions)} - {"search"}
    values: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    language = language_tag(arguments.language or ENGLISH, "--language")
    values["language"] = None if is_english(language) else language
    given = {name: getattr(arguments, name) for name in SearchOptions.model_fields}
    values["search"] = {name: value for name, value in given.items() if value is not None}
    values["resume"] = arguments.resume or arguments.resume_any
    return OutputOptions(**values)


def _read_paths(arguments: argparse.Namespace) -> tuple[list[str], bytes | None]:
    """The paths, with the names on standard input in place of -; and its photo, if it is one."""
    paths = list(arguments.paths)
    photo = None
    if "-" in paths:
        what = "the list on standard input"
        content = as_utf8(sys.stdin.buffer.read(), what)
        if not arguments.null and UNMARKED_WIDE.match(content):
            decode_text(content, what)  # Refuses it.
        if not arguments.null and b"\0" in content:  # No name has a NUL.
            photo = content
        else:
            place = paths.index("-")
            names = os.fsdecode(content).split("\0" if arguments.null else "\n")
            paths[place : place + 1] = [name.rstrip("\r") for name in names if name.strip()]
    if arguments.demo:
        paths.append(str(DEMO_PHOTO))
    if not paths:
        empty = "standard input is empty: it should be a photo or a list of names"
        raise UserError(empty if arguments.paths else "name a photo, or try --demo")
    return paths, photo


FIELDS = ("path", "caption", "rank", "score", "log_probability", "confidence", "doubt")


class _Formatter(Formatter):
    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        return kwargs[field_name], field_name  # Neither attributes nor items of a value.

    def format_field(self, value: Any, form: str) -> Any:
        return "" if value is None else super().format_field(value, form)


def formatted(form: str, values: Mapping[str, Any]) -> str:
    """A line in the format of --format; a field without a value is empty."""
    try:
        return _Formatter().vformat(form.replace("\\t", "\t").replace("\\n", "\n"), (), values)
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        known = f"the fields are {', '.join(FIELDS)}"
        raise UserError(f"--format {form} is not understood: {error}; {known}") from None


def formatted_caption(form: str, path: str, caption: Caption, rank: int = 1) -> str:
    """A line for a caption of a photo in the format of --format."""
    values = {name: getattr(caption, name, None) for name in FIELDS}
    return formatted(form, {**values, "path": path, "caption": caption.text, "rank": rank})


def caption_lines(path: str, caption: Caption, is_alone: bool, form: str | None) -> Iterator[str]:
    """A line `path: sentence` for each caption of a photo.

    is_alone: whether it is the only photo: a line has no path, and doubt goes to standard error.
    """
    versions = (caption, *caption.alternatives)
    for rank, version in enumerate(versions, start=1):
        if form:
            yield formatted_caption(form, path, version, rank)
            continue
        notes = [version.drawn_doubt] if version.doubt else []
        if len(versions) > 1:
            ranked_by = f"score {version.score:.2f}"
            notes = [ranked_by, f"log-probability {version.log_probability:.2f}", *notes]
        elif is_alone and notes:
            report(f"{path}: {notes.pop()}")
        line = version.text if is_alone else f"{path}: {version.text}"
        yield f"{line}  ({', '.join(notes)})" if notes else line
