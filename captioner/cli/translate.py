"""`captioner translate`, and `evaluate-translator` and `score-translations`: BLEU and chrF."""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import warnings
from collections.abc import Iterator
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from captioner.cli import shared_options as shared
from captioner.cli.program import report
from captioner.data.example import Problems
from captioner.data.parallel import is_gzip, text_bytes
from captioner.decoding.options import TranslationSearch
from captioner.errors import UserError
from captioner.files import refuse_os_errors, write_json, write_text
from captioner.models import DEFAULT_TRANSLATOR, LANGUAGES

if TYPE_CHECKING:
    from captioner.evaluation.translations import TranslationScores
    from captioner.render.alignment import Alignment
    from captioner.translate.translation import Translation

DESCRIPTION = """\
Translates text line by line, from standard input or a file.

  echo "A man runs." | captioner translate   English to German
  captioner translate text.en --language fr  English to French
  captioner translate text.en --alignment page.html

--n-best prints tab-separated rows: number of the line, rank, score, which ranks
them, log-probability, text. A line that is not UTF-8 yields an empty one, and
exit code 2. Too long lines and translations are cut and reported, exit code 0.
"""


SCORE_DESCRIPTION = """\
Translates a text and scores the translations line by line: sacrebleu's BLEU and
chrF with their signatures, and BLEU against the length of the source.

  captioner evaluate-translator runs/en_de/model val.en val.de --json out.json

A source too long for the model is cut, and a translation at --maximum-length;
each is reported, and the exit code stays 0.
"""

FILES_DESCRIPTION = """\
Scores translations in a file line by line: sacrebleu's BLEU and chrF with their
signatures; with --source also BLEU against the length of the source.

  captioner score-translations found.de val.de --source val.en --json out.json
"""


def add_commands(commands: shared.Commands) -> None:
    """Add the three commands to the command line."""
    summary = "translate text, and draw alignments"
    parser = shared.add_parser(commands, "translate", run, summary, "[FILE] [options]", DESCRIPTION)
    given = parser.add_argument_group("input")
    about = "a text file; .gz as well (default: standard input)"
    given.add_argument("file", nargs="?", default="-", metavar="FILE", help=about)
    translator = given.add_mutually_exclusive_group()
    shared.add_model(translator, DEFAULT_TRANSLATOR)
    translator.add_argument(
        "--language",
        type=str.lower,
        choices=tuple(LANGUAGES),
        metavar="TAG",
        help=f"into this, by the package: {', '.join(LANGUAGES)}",
    )
    shared.add_search(parser, TranslationSearch)
    out = parser.add_argument_group("alignment")
    about = "a .png, .pdf, .svg, .json or .html to write"
    out.add_argument("--alignment", metavar="FILE", help=about)
    about = "a Transformer's decoder layer, from 0; -1 is last"
    out.add_argument("--layer", type=int, metavar="N", help=about)
    out.add_argument(
        "--head",
        type=lambda text: int(text) if text.removeprefix("-").isdecimal() else text,
        metavar="HEAD",
        help="a Transformer's head, from 0, or mean",
    )
    out.add_argument("--pieces", action="store_true", help="show subwords instead of words")
    shared.add_overwrite(out)
    shared.add_machine(parser, "sentences in a batch", 32, precision=True)

    summary, usage = "score a model's translations of a text", "MODEL SOURCE REFERENCES [options]"
    parser = shared.add_parser(
        commands, "evaluate-translator", run_evaluate, summary, usage, SCORE_DESCRIPTION
    )
    given = parser.add_argument_group("input")
    given.add_argument("model", metavar="MODEL", help="a model folder, or a packaged model")
    given.add_argument("source", metavar="SOURCE", help="text to translate; .gz as well")
    _add_references(given)
    shared.add_search(parser, TranslationSearch, explained_in="translate")
    _add_scores(parser)
    shared.add_machine(parser, "sentences at a time", 50, precision=True)

    summary, usage = "score translations in a file", "TRANSLATIONS REFERENCES [options]"
    parser = shared.add_parser(
        commands, "score-translations", run_score, summary, usage, FILES_DESCRIPTION
    )
    given = parser.add_argument_group("input")
    given.add_argument("translations", metavar="TRANSLATIONS", help="text; .gz as well")
    _add_references(given)
    given.add_argument("--source", metavar="FILE", help="the text that was translated")
    _add_scores(parser)


def _add_references(group: shared.Group) -> None:
    group.add_argument("references", metavar="REFERENCES", help="text, line by line; .gz as well")
    shared.add_on_problem(group, "empty references")


def _add_scores(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scores")
    group.add_argument("--lower-case", action="store_true", help="score without case")
    shared.add_outputs(group)


def run(arguments: argparse.Namespace) -> int:
    """Translate all lines; 2 if one could not be read."""
    from captioner.models import load_translator

    name = LANGUAGES.get(arguments.language, arguments.model)
    file = _open(arguments.file)
    alignments = None
    if arguments.alignment is not None:
        path = Path(arguments.alignment)
        alignments = Alignments(path, arguments.pieces, arguments.overwrite)
    translator = load_translator(name, arguments.device, arguments.precision)
    translator.choose_alignment(arguments.layer, arguments.head)
    search = shared.search_options(arguments, translator.search)
    if alignments is not None and not translator.attends:
        raise UserError("--alignment has no meaning for a model without attention")
    # At a terminal, each line is translated before the next is read.
    batch_size = 1 if file.isatty() else arguments.batch_size
    lines, again = tee(_lines(file))
    sentences = (line for line, _ in lines)
    shown = "standard input" if arguments.file == "-" else arguments.file
    failed = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Reported below, with the line.
        translations = translator.translate(sentences, search, batch_size=batch_size)
        pairs = zip(again, translations, strict=True)
        try:
            for number, ((line, error), translation) in enumerate(pairs, start=1):
                where = f"{shown}, line {number}"
                if error:
                    failed = True
                    report(f"{where}: {error}")
                _print(number, translation, search, error)
                if translation.truncated:
                    report(_too_long(where, translation.truncated))
                if translation.cut:
                    report(_cut(where, search))
                if alignments is not None:
                    alignments.add(line, translation, error)
        finally:  # Also when interrupted.
            if alignments is not None:
                alignments.finish()
    return 2 if failed else 0


def run_evaluate(arguments: argparse.Namespace) -> int:
    """Translate, score, print the table, write the file; 2 if a reference was skipped."""
    shared.check_outputs(arguments, "--json")

    from captioner.evaluation.translations import score_translator
    from captioner.models import load_translator

    translator = load_translator(arguments.model, arguments.device, arguments.precision)
    problems = Problems(arguments.on_problem)
    search = shared.search_options(arguments, translator.search)
    scores = score_translator(
        translator,
        arguments.source,
        arguments.references,
        search,
        arguments.batch_size,
        arguments.lower_case,
        problems,
    )
    for line, lost in scores.truncated.items():
        report(_too_long(f"{arguments.source}, line {line}", lost))
    for line in scores.cut:
        report(_cut(f"{arguments.source}, line {line}", search))
    return _finish(scores, problems, arguments)


def run_score(arguments: argparse.Namespace) -> int:
    """Score, print the table, write the file; 2 if a reference was skipped."""
    shared.check_outputs(arguments, "--json")

    from captioner.evaluation.translations import score_hypotheses

    files = (arguments.translations, arguments.references, arguments.source)
    problems = Problems(arguments.on_problem)
    scores = score_hypotheses(*files, arguments.lower_case, problems)
    return _finish(scores, problems, arguments)


def _finish(scores: TranslationScores, problems: Problems, arguments: argparse.Namespace) -> int:
    for sentence in problems.sentences:
        report(sentence)
    shared.write_scores(scores, arguments)
    return 2 if problems.kinds else 0


def _too_long(where: str, lost: int) -> str:
    return f"{where}, is too long: its last {lost:,} tokens are not read"


def _cut(where: str, search: TranslationSearch) -> str:
    return f"{where}: its translation was cut at {search.maximum_length:,} tokens"


def _open(path: str) -> BinaryIO:
    if path == "-":
        return sys.stdin.buffer
    if is_gzip(path):
        return io.BytesIO(text_bytes(path))
    if not os.path.lexists(path):
        hint = "; a sentence comes from standard input: echo ... | captioner translate"
        raise UserError(f"text file {path} does not exist{hint * (' ' in path)}")
    with refuse_os_errors(f"cannot read text file {path}"):
        return open(path, "rb")


def _lines(file: BinaryIO) -> Iterator[tuple[str, str]]:
    """The lines, without their ends, each with the reason why it cannot be read, if so."""
    for number, line in enumerate(file, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n"), ""
        except UnicodeDecodeError as error:
            yield "", f"byte {error.start + 1} is not UTF-8 text"


def _print(number: int, translation: Translation, search: TranslationSearch, error: str) -> None:
    """Print a line's translation; with n-best, each in a row."""
    if search.n_best == 1:
        print(translation.text, flush=True)
    elif error:
        print(f"{number}\t1\t\t\t", flush=True)
    else:
        for rank, each in enumerate((translation, *translation.alternatives), start=1):
            numbers = f"{number}\t{rank}\t{each.score:.4f}\t{each.log_probability:.4f}"
            print(f"{numbers}\t{each.text}", flush=True)


class Alignments:
    """Writes alignments as JSON, page or pictures, by the suffix of the path.

    Each sentence has its own picture, numbered from the second: "map.png", "map-2.png", ...
    pieces: show subwords instead of words; JSON has both. overwrite: replace files that are there.
    """

    def __init__(self, path: Path, pieces: bool, overwrite: bool) -> None:
        from captioner.render.save import PAGE_SUFFIXES, PLOT_SUFFIXES

        self._path = path
        self._pieces = pieces
        self._records: list[dict[str, Any]] = []
        self._items: list[tuple[str, Alignment]] = []
        suffix = path.suffix.lower()
        known = (".json", *PAGE_SUFFIXES, *PLOT_SUFFIXES)
        if suffix not in known:
            raise UserError(f"--alignment {path} must end in {', '.join(known)}")
        self._is_json, self._is_plot = suffix == ".json", suffix in PLOT_SUFFIXES
        paths = [path]
        if self._is_plot:
            numbered = re.compile(re.escape(path.stem) + r"-\d+")
            others = path.parent.glob(f"*{path.suffix}")
            paths += [other for other in others if numbered.fullmatch(other.stem)]
        shared.check_files([("--alignment", str(path)) for path in paths], overwrite)

    def add(self, line: str, translation: Translation, error: str = "") -> None:
        """Add a line with its translation; draws its picture, and reports what it lacks.

        error: why the line could not be read; both are empty then. JSON has it as `error` and no
            scores, a page as the heading; there is no picture.
        """
        from captioner.render.alignment import save_heat_map

        if self._is_json:
            unread = {"score": None, "log_probability": None, "error": error} if error else {}
            self._records.append({"source": line, **translation.to_dict(), **unread})
            return
        shown = translation.by_token() if self._pieces else translation.by_word()
        heading = f"({error})" if error else translation.text
        self._items.append((heading, shown))
        number, path = len(self._items), self._path
        picture = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        if not self._is_plot:
            return
        if not translation.tokens:
            with refuse_os_errors(f"cannot remove {picture}"):
                picture.unlink(missing_ok=True)  # An earlier run's would be mistaken for it.
            reason = error or "its translation is empty"
            report(f"there is no picture {picture} of line {number}: {reason}")
        elif missing := " ".join(save_heat_map(picture, shown)):
            report(f"{picture} has boxes in place of letters that its fonts lack: {missing}")

    def finish(self) -> None:
        """Write the JSON or page."""
        from captioner.render.alignment import alignment_page

        if self._is_json:
            write_json(self._path, self._records)
        elif not self._is_plot:
            write_text(self._path, alignment_page(self._items))
