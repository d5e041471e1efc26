"""`captioner evaluate-translator` and `captioner score-translations`: BLEU and chrF."""

from __future__ import annotations

import argparse

from captioner.cli.report import report_cut, report_scores, report_too_long
from captioner.cli.shared_options import (
    Commands,
    Group,
    add_machine,
    add_overwrite,
    add_parser,
    add_search,
    check_outputs,
    search_options,
)
from captioner.decoding.options import TranslationSearch

DESCRIPTION = """\
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


def add_command(commands: Commands) -> None:
    """Add both commands to the command line."""
    summary, usage = "score a model's translations of a text", "MODEL SOURCE REFERENCES [options]"
    parser = add_parser(commands, "evaluate-translator", summary, DESCRIPTION, usage)
    given = parser.add_argument_group("input")
    given.add_argument("model", metavar="MODEL", help="a model folder, or a packaged model")
    given.add_argument("source", metavar="SOURCE", help="text to translate; .gz as well")
    _add_references(given)
    add_search(parser, TranslationSearch, explained_in="translate")
    _add_scores(parser)
    add_machine(parser, "sentences at a time", 50, precision=True)
    parser.set_defaults(run=run_model)

    summary, usage = "score translations in a file", "TRANSLATIONS REFERENCES [options]"
    files = add_parser(commands, "score-translations", summary, FILES_DESCRIPTION, usage)
    given = files.add_argument_group("input")
    given.add_argument("translations", metavar="TRANSLATIONS", help="text; .gz as well")
    _add_references(given)
    given.add_argument("--source", metavar="FILE", help="the text that was translated")
    _add_scores(files)
    files.set_defaults(run=run_files)


def _add_references(group: Group) -> None:
    group.add_argument("references", metavar="REFERENCES", help="text, line by line; .gz as well")


def _add_scores(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scores")
    group.add_argument("--lower-case", action="store_true", help="score without case")
    group.add_argument("--json", metavar="FILE", help="write the scores")
    add_overwrite(group)


def run_model(arguments: argparse.Namespace) -> int:
    """Translate, score, print the table, write the file."""
    check_outputs(arguments, "--json")

    from captioner.evaluation.translations import score_translator
    from captioner.models import load_translator

    translator = load_translator(arguments.model, arguments.device, arguments.precision)
    search = search_options(arguments, translator.search)
    scores = score_translator(
        translator,
        arguments.source,
        arguments.references,
        search,
        arguments.batch_size,
        arguments.lower_case,
    )
    for line, lost in scores.truncated.items():
        report_too_long(arguments.source, line, lost, translator.maximum_source_length)
    for line in scores.cut:
        report_cut(arguments.source, line, search.maximum_length)
    report_scores(scores, arguments.json)
    return 0


def run_files(arguments: argparse.Namespace) -> int:
    """Score, print the table, write the file."""
    check_outputs(arguments, "--json")

    from captioner.evaluation.translations import score_hypotheses

    scores = score_hypotheses(
        arguments.translations,
        arguments.references,
        arguments.source,
        arguments.lower_case,
    )
    report_scores(scores, arguments.json)
    return 0
