"""`captioner translate`."""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from captioner.cli.report import report, report_cut, report_too_long
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
from captioner.data.parallel import is_gzip, text_bytes
from captioner.decoding.options import TranslationSearch
from captioner.errors import UserError
from captioner.files import refuse_os_errors
from captioner.models import DEFAULT_TRANSLATOR, LANGUAGES
from captioner.text.languages import language_tag

DESCRIPTION = """\
Translates text line by line, from standard input or a file.

  echo "A man runs." | captioner translate   English to German
  captioner translate text.en --language fr  English to French
  captioner translate text.en --alignment page.html

--n-best prints tab-separated rows: number of the line, rank, score, which ranks
them, log-probability, text. A line that is not UTF-8 yields an empty one, and
exit code 2. Too long lines and translations are cut and reported, exit code 0.
"""


def add_command(commands: Commands) -> None:
    """Add the command to the command line."""
    summary = "translate text, and draw alignments"
    parser = add_parser(commands, "translate", summary, DESCRIPTION, "[FILE] [options]")
    given = parser.add_argument_group("input")
    given.add_argument(
        "file",
        nargs="?",
        default="-",
        metavar="FILE",
        help="a text file; .gz as well (default: standard input)",
    )
    translator = given.add_mutually_exclusive_group()
    add_model(translator, DEFAULT_TRANSLATOR)
    known = ", ".join(LANGUAGES)
    translator.add_argument("--language", metavar="TAG", help=f"into this, by the package: {known}")
    add_search(parser, TranslationSearch)
    out = parser.add_argument_group("alignment")
    out.add_argument(
        "--alignment", metavar="FILE", help="a .png, .pdf, .svg, .json or .html to write"
    )
    out.add_argument(
        "--layer",
        type=int,
        metavar="N",
        help="a Transformer's decoder layer, from 0; -1 is last",
    )
    out.add_argument(
        "--head",
        type=lambda text: int(text) if text.removeprefix("-").isdecimal() else text,
        metavar="HEAD",
        help="a Transformer's head, from 0, or mean",
    )
    out.add_argument(
        "--pieces",
        action="store_true",
        default=None,
        help="show subwords instead of words",
    )
    add_overwrite(out)
    add_machine(parser, "sentences in a batch", 32, precision=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Translate all lines; 2 if one could not be read."""
    from captioner.cli.alignment_outputs import AlignmentFile
    from captioner.models import load_translator

    if arguments.language is not None:
        language = language_tag(arguments.language, "--language").partition("-")[0]
        if language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            raise UserError(
                f"--language {language} is not one of the package's, {known}; name another "
                "translator by --model"
            )
        arguments.model = LANGUAGES[language]
    shown = "standard input" if arguments.file == "-" else arguments.file
    file = _open(arguments.file)
    alignment = None
    if arguments.alignment is None:
        refuse(arguments, ("layer", "head", "pieces"), "without --alignment")
    else:
        alignment = AlignmentFile(Path(arguments.alignment), bool(arguments.pieces))
        alignment.check(arguments.overwrite)
    translator = load_translator(arguments.model, arguments.device, arguments.precision)
    translator.choose_alignment(arguments.layer, arguments.head)
    search = search_options(arguments, translator.search)
    if alignment is not None and not translator.attends:
        raise UserError("--alignment has no meaning for a model without attention")
    generator = search.generator(translator.device)
    # At a terminal, each line is translated before the next is read.
    batch_size = 1 if file.isatty() else arguments.batch_size
    lines = _lines(file)
    failed = False
    done = 0
    try:
        while batch := list(islice(lines, batch_size)):
            sentences = [sentence for sentence, _ in batch]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # Reported below, with the line.
                translations = translator.translate(
                    sentences, search, batch_size=batch_size, generator=generator
                )
            for (sentence, error), translation in zip(batch, translations, strict=True):
                done += 1
                versions = (translation, *translation.alternatives)
                if error:
                    failed = True
                    report(f"{shown}, line {done}: {error}")
                    print(f"{done}\t1\t\t\t" if search.n_best > 1 else "")
                    versions = ()
                if translation.truncated:
                    reads = translator.maximum_source_length
                    report_too_long(shown, done, translation.truncated, reads)
                for rank, each in enumerate(versions, start=1):
                    if each.cut:
                        report_cut(shown, done, search.maximum_length, rank)
                    numbers = f"{done}\t{rank}\t{each.score:.4f}\t{each.log_probability:.4f}\t"
                    print(f"{numbers if search.n_best > 1 else ''}{each.text}")
                if alignment and (lacking := alignment.add(sentence, translation, error)):
                    report(lacking)
            sys.stdout.flush()
    finally:  # Also when interrupted.
        if alignment is not None:
            alignment.finish()
    return 2 if failed else 0


def _open(path: str) -> BinaryIO:
    if path == "-":
        if sys.stdin is None:
            raise UserError("standard input is closed: there is no text to translate")
        return sys.stdin.buffer
    if is_gzip(path):
        return io.BytesIO(text_bytes(path))
    if not os.path.lexists(path):
        hint = "; a sentence comes from standard input: echo ... | captioner translate"
        raise UserError(f"text file {path} does not exist{hint * (' ' in path)}")
    with refuse_os_errors(f"cannot read text file {path}"):
        file = open(path, "rb")  # noqa: SIM115 - the caller reads it.
        if b"\0" not in file.peek():
            return file
    file.close()
    raise UserError(f"{path} is not UTF-8 text: it has null bytes")


def _lines(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """The lines, without their ends, each with the reason why it cannot be read, if so."""
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"), ""
        except UnicodeDecodeError as error:
            yield "", f"byte {error.start + 1} is not UTF-8 text"
