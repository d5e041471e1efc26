"""`captioner translate`."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from captioner.cli.options import (
    Commands,
    add_device,
    add_parser,
    add_search,
    add_translation_search,
    search_options,
)
from captioner.cli.report import report
from captioner.errors import UserError
from captioner.models import DEFAULT_TRANSLATOR

DESCRIPTION = """\
Translates text, one sentence a line, from standard input or a file. As many lines come out.

  echo "A man runs." | captioner translate          the packaged model, English to German
  captioner translate text.en > text.de
  captioner translate text.en --beam 8 --n-best 3
  captioner translate text.en --alignment page.html
  captioner translate --model runs/multi30k/model text.en --alignment map.png --layer 2 --head 0

With --n-best, each comes on a line of its own: the number of the sentence, its log-probability and
the text, with tabs between them. A line that is not UTF-8 is reported, and an empty line comes out
for it; the exit code is then 2. A sentence longer than the model reads is cut, and that is said.
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_parser(commands, "translate", "translate text, and draw alignments", DESCRIPTION)
    parser.add_argument(
        "file", nargs="?", default="-", metavar="FILE", help="a text file (default: standard input)"
    )
    parser.add_argument(
        "--model",
        default=DEFAULT_TRANSLATOR,
        help="a model folder, or a packaged model (default: %(default)s)",
    )
    add_device(parser)
    parser.add_argument(
        "--batch-size",
        type=int,
        default=32,
        help="sentences worked on at a time (default: %(default)s)",
    )
    add_translation_search(add_search(parser, "translations", "sentence"))
    out = parser.add_argument_group("alignment")
    out.add_argument(
        "--alignment", metavar="FILE", help="where it looked, as .png, .pdf, .svg, .json or .html"
    )
    out.add_argument(
        "--layer", type=int, help="of a Transformer: the decoder layer to take it from, from 0"
    )
    out.add_argument(
        "--head",
        type=lambda text: int(text) if text.removeprefix("-").isdecimal() else text,
        metavar="HEAD",
        help="of a Transformer: one head, from 0, or mean, that of all (default: the model's own)",
    )
    out.add_argument(
        "--pieces", action="store_true", help="show subwords as they are, not put together to words"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Translate all lines; 2 when one could not be read."""
    if arguments.batch_size < 1:
        raise UserError(f"--batch-size {arguments.batch_size} is not at least 1")
    from captioner.models import load_translator
    from captioner.recipes.alignments import AlignmentFile
    from captioner.translate import TranslationSearch

    file = _open(arguments.file)
    if arguments.pieces and not arguments.alignment:
        raise UserError("--pieces has no meaning without --alignment")
    alignment = None
    if arguments.alignment:
        alignment = AlignmentFile(Path(arguments.alignment), arguments.pieces)
    translator = load_translator(arguments.model, arguments.device)
    translator.choose_alignment(arguments.layer, arguments.head)
    search = search_options(arguments, translator.search)
    assert isinstance(search, TranslationSearch)
    translator.check_search(search)
    if alignment is not None and not translator.attends:
        raise UserError("--alignment has no meaning for a model without attention")
    generator = search.generator()
    # A person at the keyboard wants each line's translation before the next.
    batch_size = 1 if file.isatty() else arguments.batch_size
    lines = _lines(file, arguments.file)
    failed = 0
    done = 0
    try:
        while batch := list(islice(lines, batch_size)):
            failed += batch.count(None)
            sentences = [line or "" for line in batch]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # Said below, with the line.
                found = translator.translate(sentences, search, batch_size, generator)
            for sentence, translation in zip(sentences, found, strict=True):
                done += 1
                if translation.truncated:
                    report(
                        f"line {done} is too long: its last {translation.truncated:,} tokens are "
                        f"not read, since the model reads {translator.maximum_source_length:,}"
                    )
                if search.n_best == 1:
                    print(translation.text)
                else:
                    for each in (translation, *translation.alternatives):
                        print(f"{done}\t{each.log_probability:.4f}\t{each.text}")
                if alignment is not None:
                    alignment.add(sentence, translation)
            sys.stdout.flush()
    finally:  # An interruption loses nothing that is done.
        if alignment is not None:
            alignment.finish()
    return 2 if failed else 0


def _open(path: str) -> BinaryIO:
    if path == "-":
        return sys.stdin.buffer
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise UserError(f"text file {path} does not exist") from None
    except OSError as error:
        raise UserError(f"cannot read text file {path}: {error.strerror or error}") from None


def _lines(file: BinaryIO, name: str) -> Iterator[str | None]:
    """The lines without their ends; None, which is reported, for one that is not UTF-8."""
    shown = "standard input" if name == "-" else name
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            report(f"{shown}, line {number}: byte {error.start + 1} is not UTF-8 text")
            yield None
