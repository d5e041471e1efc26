"""`captioner caption`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from captioner.cli import shared_options as shared
from captioner.cli.program import report
from captioner.decoding.options import SearchOptions
from captioner.errors import UserError, on_a_line
from captioner.files import UNMARKED_WIDE, as_utf8, decode_text, read_text, real_path
from captioner.loading import LANGUAGES
from captioner.model_folders import DEMO_PHOTO, pinned
from captioner.outputs.options import CaptionSource, OutputOptions
from captioner.schema import choices
from captioner.text.languages import ENGLISH, is_english, language_tag

if TYPE_CHECKING:
    from captioner.caption.caption import Caption
    from captioner.outcomes import Failed
    from captioner.vision.images import ImageSource


_FIELDS = {
    field.alias or name: field
    for name, field in OutputOptions.model_fields.items()
    if field.description
}
"""Of the options in the group of outputs."""
KNOWN = "unreadable as known"
_GIVEN = ("xmp", "output", "decoding_seconds", *_FIELDS)


def add_commands(commands: shared.Commands) -> None:
    """Add the command to the command line."""
    usage, summary = "caption [PATH ...] [options]", "caption photos, draw attention maps"
    parser, add = shared.add_parser(commands, run, usage, summary)
    add("paths", "PATH", "photos, folders, shards, quoted patterns, or -", nargs="*")
    add("--demo", "", "caption the packaged photo")
    add("-0 --null", "", "names read from - and lines printed end in NUL")
    add("--model", "MODEL", shared.MODEL_HELP, default="default")
    add("--calibration", "FILE", shared.CALIBRATION_HELP)
    add("--language", "TAG", f"of captions: {', '.join([ENGLISH, *LANGUAGES])}")
    add("--translator", "MODEL", "for --language: a model folder or name")
    add("--known", "FILE", "unreadable photos, a name a line: they are no exit code 2")
    add("--given", "TEXT", "score this caption, and draw where the model looks for it")
    add("--erase", "", "test each word: its probability without what its map shows")
    shared.add_search(parser, SearchOptions)
    add = shared.add_group(parser, "output")
    add_outputs(add, _FIELDS)
    about = "an output of another package, such as alt=alt.csv; see extending.md"
    add("--output", "NAME=PATH", about, action="append", default=[])
    shared.add_machine(parser, "photos in a batch", 16)
    about = "limit for decoding a large or slow photo (default: 20)"
    shared.add_option(parser, "--decoding-seconds", "SECONDS", about, type=shared.positive)


def add_outputs(add: shared.Add, names: Iterable[str]) -> None:
    """Add the options of these fields, and those of sidecars."""
    for name in names:
        field = _FIELDS[name]
        shared.add_field(add, name, field, field.description, default=field.default)
    about = "beside each photo, write or merge caption and keywords as photo.xmp"
    add("--xmp", "", about, action="store_const", const="lightroom")
    programs = choices(OutputOptions.model_fields["xmp"].annotation)
    about = f"the same, for {', '.join(programs)}"
    add("--xmp-for", "PROGRAM", about, dest="xmp", choices=programs)


def output_options(arguments: argparse.Namespace) -> OutputOptions:
    """The options that say where captions go."""
    options = OutputOptions(**{name: getattr(arguments, name) for name in _GIVEN})
    if options.edited and not options.resumes:
        raise UserError("--edited needs --resume")
    return options


def caption_source(arguments: argparse.Namespace) -> CaptionSource:
    """The options that say where captions come from."""
    tag = language_tag(arguments.language or ENGLISH, "--language")
    given: dict[str, str | None] = {}
    if not is_english(tag):
        packaged = LANGUAGES.get(tag.partition("-")[0])
        given = {"language": tag, "translator": arguments.translator or packaged}
        if arguments.given is not None:
            raise UserError("--given is scored in English: leave out --language")
        if arguments.erase:
            raise UserError("--erase tests English words: leave out --language")
    elif arguments.translator:
        raise UserError("--translator needs --language, and another one than en")
    search = {name: getattr(arguments, name) for name in SearchOptions.model_fields}
    search = {name: value for name, value in search.items() if value is not None}
    model, calibration = pinned(arguments.model), arguments.calibration
    return CaptionSource(model=model, calibration=calibration, search=search, **given)


def run(arguments: argparse.Namespace) -> int:
    """Captions photos. Every word has an attention map, which can be drawn.

      captioner caption photo.jpg --overlay maps.png   a panel for each word
      captioner caption photos/ 'shards/{00000..00099}.tar' --jsonl out.jsonl --resume
      find . -name '*.jpg' | captioner caption - --json -   to standard output

    - is standard input, a photo or a list of names. An unreadable photo is skipped: exit code 2.
    """
    paths, standard_input = _read_paths(arguments)

    from captioner.outputs.outputs import opened_outputs
    from captioner.progress import counted_by, progress_bar
    from captioner.vision.finding import find_photos
    from captioner.vision.images import ignore

    options, source = output_options(arguments), caption_source(arguments)
    known = _known(arguments.known)
    photos, failures = find_photos(paths, note=ignore if options.quiet else report)
    if options.prune and failures:  # Such as a folder without photos, whose disk is not mounted.
        raise UserError(f"{failures[0]}: --prune would drop records of photos that may be there")
    if standard_input is not None:
        photos["-"] = standard_input
    if arguments.null:  # Any file name is printed as it is.
        assert isinstance(sys.stdout, io.TextIOWrapper)
        sys.stdout.reconfigure(encoding=sys.getfilesystemencoding(), errors="surrogateescape")
    is_alone = len(photos) == 1 and (arguments.demo or [*photos] == arguments.paths)
    with opened_outputs(options, photos, report, source) as outputs:
        if outputs.finished and not options.quiet:
            report(f"{len(outputs.finished):,} of {len(photos):,} photos are captioned already")
        total = len(failures) + len(outputs.remaining)
        has_bar = total > arguments.batch_size and not options.quiet
        prints = _prints(options, has_bar)
        captions = chain(failures, _captions(arguments, source, outputs.remaining))
        counts: Counter[str] = Counter()
        with progress_bar("captioning", total, "photos", shown=has_bar) as progress:
            for record in counted_by(progress, outputs.write(captions)):
                is_new = record.image not in outputs.finished  # Or captioned again for its maps.
                with progress.external_write_mode():
                    if prints and record.made and is_new:
                        print_captions(record.to_caption(), arguments, is_alone)
                    if record.error:
                        report(record.error)
                if is_new or record.error:
                    outcome = record.outcome
                    if outcome == "unreadable" and real_path(record.image) in known:
                        outcome = KNOWN
                    counts[outcome] += 1
                    counts["not sure"] += record.outcome == "captioned" and record.sure is False
    if counts and len(photos) + len(failures) > 1 and not options.quiet:
        report(_summary(counts))
    return 2 if counts["unreadable"] or counts["not written"] else 0


def _known(path: str | None) -> set[str]:
    """The photos that a file of `--known` names, from the working folder."""
    if path is None:
        return set()
    return {real_path(name) for name in read_text(path, "list").splitlines() if name.strip()}


def _summary(counts: Counter[str]) -> str:
    """How many photos were captioned, and how many were not; each counts once."""
    unsure = f" ({counts['not sure']:,} not sure)" if counts["not sure"] else ""
    others = ("kept a person's words", "unreadable", KNOWN, "not written")
    parts = [f"{counts[name]:,} {name}" for name in others if counts[name]]
    return ", ".join([f"{counts['captioned']:,} captioned{unsure}", *parts])


def _prints(options: OutputOptions, has_bar: bool) -> bool:
    """Whether captions are printed: not beside a table on standard output.

    Nor beside a bar on a terminal, if there is a table: thousands of lines would scroll by.
    """
    if options.quiet or "-" in options.tables.values():
        return False
    has_bar = has_bar and sys.stdout.isatty() and sys.stderr.isatty()
    return not (has_bar and (options.tables or options.shards) and not options.format)


def _captions(
    arguments: argparse.Namespace, source: CaptionSource, photos: Mapping[str, ImageSource]
) -> Iterator[Caption | Failed]:
    """Load the models, unless there are no photos, and caption."""
    if not photos:
        return iter(())

    from captioner.caption.captioner import caption_photos
    from captioner.caption.erase import with_erased
    from captioner.loading import load

    machine = shared.machine(arguments, arguments.sample)
    model = load(source.model, **machine, calibration=source.calibration)
    search = model.search.override(**source.search)
    translate = model.translation(source.language, search, arguments.translator)
    seconds, size = arguments.decoding_seconds, arguments.batch_size
    given = None if arguments.given is None else [arguments.given] * len(photos)
    named = photos.items()
    captions = caption_photos(model, named, search, size, translate, seconds, given, report)
    return with_erased(replace(model, search=search), captions) if arguments.erase else captions


def print_captions(caption: Caption, arguments: argparse.Namespace, is_alone: bool) -> None:
    """Print its lines; the doubt of a single caption of the only photo is reported."""
    from captioner.outputs.lines import caption_lines

    name = caption.name or ""
    path = name if arguments.null else on_a_line(name)
    if is_alone and caption.doubt and not (caption.alternatives or arguments.format):
        report(f"{path}: {caption.drawn_doubt}")
    for line in caption_lines(path, caption, is_alone, arguments.format):
        print(line, end="\0" if arguments.null else "\n", flush=True)


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
