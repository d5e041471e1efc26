"""The commands `translate`, `evaluate-translator` and `score-translations`."""

from __future__ import annotations

import argparse
import warnings
from itertools import tee
from pathlib import Path
from typing import TYPE_CHECKING

from captioner.cli import shared_options as shared
from captioner.cli.program import report
from captioner.data.example import Problems
from captioner.data.lines import lines_with_errors, opened_text
from captioner.decoding.options import TranslationSearch
from captioner.errors import UserError, counted
from captioner.files import check_files
from captioner.loading import DEFAULT_TRANSLATOR, LANGUAGES

if TYPE_CHECKING:
    from captioner.translate.translation import Translation

NO_SCORES = "\t"
"""In place of the score and the log-probability of a line that cannot be read."""


def add_commands(commands: shared.Commands) -> None:
    """Add the three commands to the command line."""
    usage, summary = "translate [FILE] [options]", "translate text, and draw alignments"
    parser, _ = shared.add_parser(commands, run, usage, summary)
    group = parser.add_argument_group("input")
    about = "a text file; .gz as well (default: standard input)"
    group.add_argument("file", nargs="?", default="-", metavar="FILE", help=about)
    translator = group.add_mutually_exclusive_group()
    shared.add_option(translator, "--model", "MODEL", shared.MODEL_HELP, default=DEFAULT_TRANSLATOR)
    about = f"target language of the packaged translators: {', '.join(LANGUAGES)}"
    shared.add_option(translator, "--language", "TAG", about, type=str.lower, choices=[*LANGUAGES])
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
    parser, add = shared.add_parser(commands, run_evaluate, usage, summary)
    add("model", "MODEL", "a model folder, or a packaged model")
    add("source", "SOURCE", "text to translate; .gz as well")
    _add_references(add)
    shared.add_search(parser, TranslationSearch, explained_in="translate")
    _add_scores(parser)
    shared.add_machine(parser, "sentences at a time", 50)

    usage = "score-translations TRANSLATIONS REFERENCES [options]"
    parser, add = shared.add_parser(commands, run_score, usage, "score translations in a file")
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
    """Translates text line by line, from standard input or a file.

      echo "A man runs." | captioner translate   English to German
      captioner translate text.en --alignment page.html

    --n-best prints tab-separated rows: number of the line, rank, score, which ranks
    them, log-probability, text. Standard error names translations that are not
    sure, such as those of text that is not English. A line that is not UTF-8 yields
    an empty one, and exit code 2. Too long lines and translations are cut and
    reported, exit code 0.
    """
    from captioner.loading import load_translator
    from captioner.translate.alignment_files import AlignmentWriter

    file = opened_text(arguments.file)
    alignments = None
    if arguments.alignment is not None:
        alignments = AlignmentWriter(Path(arguments.alignment), arguments.pieces)
        files = [("--alignment", str(path)) for path in alignments.first_files()]
        check_files(files, arguments.overwrite)
    name = LANGUAGES.get(arguments.language, arguments.model)
    head, layer = arguments.head, arguments.layer
    needs_torch = arguments.sample or head or layer is not None
    translator = load_translator(name, **shared.machine(arguments, bool(needs_torch)))
    is_number = head and head.removeprefix("-").isdecimal()
    translator.choose_alignment(layer, int(head) if is_number else head)
    if alignments and not translator.attends:
        raise UserError("--alignment has no meaning for a model without attention")
    search = shared.search_options(arguments, translator.search)
    # At a terminal, each line is translated before the next is read.
    batch_size = 1 if file.isatty() else arguments.batch_size
    lines, again = tee(lines_with_errors(file))
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
                _report_cuts(where, translation, search)
                if translation.doubt:
                    report(f"{where}: {translation.doubt}")
                if alignments and (lacks := alignments.add(number, line, error, translation)):
                    report(lacks)
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


def run_evaluate(arguments: argparse.Namespace) -> int:
    """Translates a text and scores the translations line by line: sacrebleu's BLEU and
    chrF with their signatures, and BLEU against the length of the source.

      captioner evaluate-translator runs/en_de/model val.en val.de --json out.json
    """
    shared.check_outputs([("--json", arguments.json)], arguments.overwrite)

    from captioner.evaluation.translations import score_translator
    from captioner.loading import load_translator

    problems = Problems(arguments.on_problem)
    translator = load_translator(arguments.model, **shared.machine(arguments, arguments.sample))
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
    for line, shortened in scores.shortened.items():
        _report_cuts(f"{arguments.source}, line {line}", shortened, search)
    return shared.write_scores(scores, arguments.json, problems=[problems])


def run_score(arguments: argparse.Namespace) -> int:
    """Scores translations in a file line by line: sacrebleu's BLEU and chrF with their
    signatures; with --source also BLEU against the length of the source.

      captioner score-translations found.de val.de --source val.en --json out.json
    """
    shared.check_outputs([("--json", arguments.json)], arguments.overwrite)

    from captioner.evaluation.translations import score_hypotheses

    problems = Problems(arguments.on_problem)
    scores = score_hypotheses(
        arguments.translations,
        arguments.references,
        arguments.source,
        arguments.lower_case,
        problems,
    )
    return shared.write_scores(scores, arguments.json, problems=[problems])


def _report_cuts(where: str, translation: Translation, search: TranslationSearch) -> None:
    if translation.truncated:
        report(f"{where}, is too long: its last {translation.truncated:,} tokens are not read")
    if translation.cut:
        report(f"{where}: its translation was cut at {counted(search.maximum_length, 'token')}")
