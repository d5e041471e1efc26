"""The commands `translate`, `evaluate-translator` and `score-translations`."""

from __future__ import annotations

import argparse
import codecs
import io
import os
import sys
import warnings
from collections.abc import Iterator
from itertools import chain, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from captioner.cli import shared_options as shared
from captioner.cli.program import report
from captioner.data.example import Problems
from captioner.data.parallel import text_bytes
from captioner.decoding.options import TranslationSearch
from captioner.errors import UserError, counted
from captioner.files import as_utf8, check_files, write_json, write_text
from captioner.models import DEFAULT_TRANSLATOR, LANGUAGES

if TYPE_CHECKING:
    from captioner.translate.translation import Translation

DESCRIPTION = """\
Translates text line by line, from standard input or a file.

  echo "A man runs." | captioner translate   English to German
  captioner translate text.en --alignment page.html

--n-best prints tab-separated rows: number of the line, rank, score, which ranks
them, log-probability, text. Standard error names translations that are not
sure, such as those of text that is not English. A line that is not UTF-8 yields
an empty one, and exit code 2. Too long lines and translations are cut and
reported, exit code 0.
"""

SCORE_DESCRIPTION = """\
Translates a text and scores the translations line by line: sacrebleu's BLEU and
chrF with their signatures, and BLEU against the length of the source.

  captioner evaluate-translator runs/en_de/model val.en val.de --json out.json
"""

FILES_DESCRIPTION = """\
Scores translations in a file line by line: sacrebleu's BLEU and chrF with their
signatures; with --source also BLEU against the length of the source.

  captioner score-translations found.de val.de --source val.en --json out.json
"""

NO_SCORES = "\t"
"""In place of the score and the log-probability of a line that cannot be read."""

_ONE_FILE = (".json", ".html", ".htm")
"""Suffixes of alignments in one file; the others are of pictures, one a line."""


def add_commands(commands: shared.Commands) -> None:
    """Add the three commands to the command line."""
    usage, summary = "translate [FILE] [options]", "translate text, and draw alignments"
    parser, _ = shared.add_parser(commands, run, usage, summary, DESCRIPTION)
    group = parser.add_argument_group("input")
    about = "a text file; .gz as well (default: standard input)"
    group.add_argument("file", nargs="?", default="-", metavar="FILE", help=about)
    translator = group.add_mutually_exclusive_group()
    shared.add_option(translator, "--model", "MODEL", shared.MODEL, default=DEFAULT_TRANSLATOR)
    about = f"target language of the packaged translators: {', '.join(LANGUAGES)}"
    shared.add_option(
        translator, "--language", "TAG", about, type=str.lower, choices=list(LANGUAGES)
    )
    shared.add_search(parser, TranslationSearch)
    add = shared.add_group(parser, "alignment")
    add("--alignment", "FILE", "a .png, .jpg, .webp, .pdf, .json or .html to write")
    add("--layer", "N", "a Transformer's decoder layer, from 0; -1 is last")
    add("--head", "HEAD", "a Transformer's head, from 0, or mean")
    add("--pieces", "", "show subwords instead of words")
    add("--overwrite", "", shared.OVERWRITE)
    shared.add_machine(parser, "sentences in a batch", 32)

    usage = "evaluate-translator MODEL SOURCE REFERENCES [options]"
    summary = "score a model's translations of a text"
    parser, add = shared.add_parser(commands, run_score, usage, summary, SCORE_DESCRIPTION)
    add("model", "MODEL", "a model folder, or a packaged model")
    add("source", "SOURCE", "text to translate; .gz as well")
    _add_references(add)
    shared.add_search(parser, TranslationSearch, explained_in="translate")
    _add_scores(parser)
    shared.add_machine(parser, "sentences at a time", 50)

    usage = "score-translations TRANSLATIONS REFERENCES [options]"
    summary = "score translations in a file"
    parser, add = shared.add_parser(commands, run_score, usage, summary, FILES_DESCRIPTION)
    add("translations", "TRANSLATIONS", "text; .gz as well")
    _add_references(add)
    add("--source", "FILE", "the text that was translated")
    _add_scores(parser)


def _add_references(add: shared.Add) -> None:
    add("references", "REFERENCES", "text, line by line; .gz as well")
    add("--on-problem", "ACTION", "refuse or skip empty references", **shared.ON_PROBLEM)


def _add_scores(parser: argparse.ArgumentParser) -> None:
    add = shared.add_group(parser, "scores")
    add("--lower-case", "", "score without case")
    shared.add_outputs(add)


def run(arguments: argparse.Namespace) -> int:
    """Translate all lines; 2 if one could not be read."""
    from captioner.models import load_translator

    file = _open(arguments.file)
    alignments = None
    if arguments.alignment is not None:
        alignments = _AlignmentWriter(arguments.alignment, arguments.overwrite, arguments.pieces)
    name = LANGUAGES.get(arguments.language, arguments.model)
    translator = load_translator(name, **shared.machine(arguments))
    head = arguments.head
    is_number = head and head.removeprefix("-").isdecimal()
    translator.choose_alignment(arguments.layer, int(head) if is_number else head)
    if alignments and not translator.attends:
        raise UserError("--alignment has no meaning for a model without attention")
    search = shared.search_options(arguments, translator.search)
    # At a terminal, each line is translated before the next is read.
    batch_size = 1 if file.isatty() else arguments.batch_size
    lines, again = tee(_lines(file))
    shown = "standard input" if arguments.file == "-" else arguments.file
    failed = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Reported below, with the line.
        sentences = (line for line, _ in lines)
        translations = translator.translate(sentences, search, batch_size=batch_size)
        pairs = zip(again, translations, strict=True)
        try:
            for number, ((line, error), translation) in enumerate(pairs, start=1):
                where = f"{shown}, line {number}"
                if error:
                    failed = True
                    report(f"{where}: {error}")
                _print_translations(number, translation, error, search.n_best)
                _report_cuts(where, translation.truncated, translation.cut, search)
                if translation.doubt:
                    report(f"{where}: {translation.doubt}")
                if alignments:
                    alignments.add(number, line, error, translation)
        finally:  # Also when interrupted.
            if alignments:
                alignments.finish()
    return 2 if failed else 0


def _print_translations(number: int, translation: Translation, error: str, n_best: int) -> None:
    for rank, version in enumerate((translation, *translation.alternatives), start=1):
        row = version.text
        if n_best > 1:
            scores = f"{version.score:.4f}\t{version.log_probability:.4f}"
            row = f"{number}\t{rank}\t{NO_SCORES if error else scores}\t{row}"
        print(row, flush=True)


class _AlignmentWriter:
    """Writes alignments: a JSON file or a page at the end, or a picture for each line.

    pieces: whether rows and columns are subwords, not words.
    """

    def __init__(self, file: str, overwrite: bool, pieces: bool) -> None:
        from captioner.render.overlay import PICTURE_SUFFIXES, check_suffix

        self._path = Path(file)
        self._pieces = pieces
        self._suffix = self._path.suffix.lower()
        self._items: list[Any] = []  # Records, or titles with alignments.
        check_suffix(self._path, (*_ONE_FILE, *PICTURE_SUFFIXES))
        paths = [self._path] if self._suffix in _ONE_FILE else [self._picture(1), self._picture(2)]
        check_files([("--alignment", str(path)) for path in paths], overwrite)

    def add(self, number: int, line: str, error: str, translation: Translation) -> None:
        """Collect the alignment of a line, or draw it. error: why the line could not be read."""
        if self._suffix == ".json":
            record = {"source": line, **translation.to_dict()}
            if error:
                unread = ("score", "log_probability", "confidence", "sure")
                record |= {**dict.fromkeys(unread), "error": error}
            self._items.append(record)
            return
        alignment = translation.by_token() if self._pieces else translation.by_word()
        if self._suffix not in _ONE_FILE:
            from captioner.render.alignment import save_heat_map

            picture = self._picture(number)
            if not alignment.target:
                reason = error or "its translation is empty"
                report(f"there is no picture {picture} of line {number}: {reason}")
            elif missing := " ".join(save_heat_map(picture, alignment)):
                report(f"{picture} has boxes in place of letters that its fonts lack: {missing}")
            return
        doubt = f"  ({translation.doubt})" if translation.doubt else ""
        title = f"({error})" if error else f"{translation.text}{doubt}"
        self._items.append((title, alignment))

    def finish(self) -> None:
        if self._suffix == ".json":
            write_json(self._path, self._items)
        elif self._items:
            from captioner.render.alignment import alignment_page

            write_text(self._path, alignment_page(self._items))

    def _picture(self, number: int) -> Path:
        """The picture of a line: "map.png", "map-2.png", ..."""
        return self._path.with_stem(f"{self._path.stem}-{number}") if number > 1 else self._path


def run_score(arguments: argparse.Namespace) -> int:
    """Score a file, or a model's translations; 2 if a reference was skipped."""
    shared.check_outputs(arguments, "--json")

    from captioner.evaluation.translations import score_hypotheses, score_translator
    from captioner.models import load_translator

    problems = Problems(arguments.on_problem)
    source = arguments.source
    references = arguments.references
    lower_case = arguments.lower_case
    if hasattr(arguments, "model"):
        translator = load_translator(arguments.model, **shared.machine(arguments))
        search = shared.search_options(arguments, translator.search)
        scores = score_translator(
            translator, source, references, search, arguments.batch_size, lower_case, problems
        )
        for line, shortened in scores.shortened.items():
            _report_cuts(f"{source}, line {line}", shortened.truncated, shortened.cut, search)
    else:
        scores = score_hypotheses(arguments.translations, references, source, lower_case, problems)
    return shared.write_scores(scores, arguments, [problems])


def _report_cuts(where: str, truncated: int, is_cut: bool, search: TranslationSearch) -> None:
    if truncated:
        report(f"{where}, is too long: its last {truncated:,} tokens are not read")
    if is_cut:
        report(f"{where}: its translation was cut at {counted(search.maximum_length, 'token')}")


def _open(path: str) -> BinaryIO:
    if path == "-":
        return sys.stdin.buffer
    if not os.path.lexists(path):
        raise UserError(f"text file {path} does not exist; sentences come from standard input")
    content = text_bytes(path)
    if not content.startswith(codecs.BOM_UTF8):  # There, one line may be wrong.
        content = as_utf8(content, f"text file {path}")
    if b"\0" in content[:16]:  # A photo, or an archive.
        raise UserError(f"text file {path} is not UTF-8 text: it has NUL bytes")
    return io.BytesIO(content)


def _lines(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """The lines, without their ends, each with the reason why it cannot be read, if so."""
    first = file.readline()
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # Of standard input.
        file = io.BytesIO(as_utf8(first + file.read(), "the text"))
        first = b""
    for number, line in enumerate(chain([first] if first else [], file), start=1):
        if b"\0" in line:
            yield "", "it has NUL bytes, and is not UTF-8 text"
            continue
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"), ""
        except UnicodeDecodeError as error:
            yield "", f"byte {error.start + 1} is not UTF-8 text"
