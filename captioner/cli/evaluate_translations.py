"""`captioner evaluate` with --source or --hypotheses: translations, of a file or of a model."""

from __future__ import annotations

import argparse
from typing import Any

from captioner.cli import evaluate_captions, evaluate_maps
from captioner.cli.options import SEARCH, TRANSLATION_SEARCH, refuse, search_options
from captioner.cli.report import report_cut, report_too_long
from captioner.errors import UserError

DESCRIPTION = """\
Translations, line by line, are scored by sacrebleu: BLEU and chrF with their signatures, and BLEU
against the length of the source. A model translates --source; or they come from a file:

  captioner evaluate --model runs/multi30k_en_de/model --source val.en --references val.de
  captioner evaluate --hypotheses found.de --references val.de --source val.en --json scores.json

A source that is longer than the model reads is cut, and so is a translation that is longer than
--maximum-length; each is reported, and the exit code stays 0.
"""

OWN = ("hypotheses", "source", "lower_case", "length_width")
"""The options that have a meaning for translations only; None where not given."""

NOT_OF_TRANSLATIONS = (
    *("results", "format", "n_best", *evaluate_maps.OWN),
    *(*evaluate_captions.OF_CAPTIONS, *evaluate_captions.OF_DATA),
)
OF_MODEL = ("batch_size", *SEARCH, *TRANSLATION_SEARCH)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what says that translations are scored, and which."""
    translations = parser.add_argument_group("translations")
    translations.add_argument(
        "--source", metavar="FILE", help="text to translate, or that was translated; .gz as well"
    )
    translations.add_argument(
        "--hypotheses", metavar="FILE", help="its translations, in place of a model's"
    )
    translations.add_argument(
        "--lower-case", action="store_true", default=None, help="score all in small letters"
    )
    translations.add_argument(
        "--length-width",
        type=int,
        metavar="WORDS",
        help="BLEU for each so many lengths of the source (default: 5)",
    )


def chosen(arguments: argparse.Namespace) -> bool:
    """Whether it is translations that are to be scored."""
    return arguments.source is not None or arguments.hypotheses is not None


def run(arguments: argparse.Namespace) -> int:
    """Score, print the table, write the file asked for."""
    if arguments.maps:
        raise UserError("--maps has no meaning for translations")
    refuse(arguments, NOT_OF_TRANSLATIONS, "for translations")
    if not arguments.references:
        raise UserError("translations are scored against --references: give a text file")
    if arguments.hypotheses is None and not arguments.model:
        raise UserError("give --hypotheses, or --model to translate --source")
    if arguments.hypotheses is not None:
        refuse(arguments, ("model", *OF_MODEL), "with --hypotheses")
    if arguments.length_width is not None and arguments.source is None:
        raise UserError("--length-width has no meaning without --source")
    from captioner.evaluation.translation_report import WIDTH, score_hypotheses
    from captioner.files import write_json

    options: dict[str, Any] = {
        "lower_case": bool(arguments.lower_case),
        "width": WIDTH if arguments.length_width is None else arguments.length_width,
    }
    if arguments.hypotheses is not None:
        found = score_hypotheses(
            arguments.hypotheses, arguments.references, arguments.source, **options
        )
    else:
        found = _of_model(arguments, options)
    print(found.table(), flush=True)
    if arguments.json:
        write_json(arguments.json, found.as_dict())
    return 0


def _of_model(arguments: argparse.Namespace, options: dict[str, Any]) -> Any:
    from captioner.devices import choose_device
    from captioner.evaluation.translation_report import score_translator
    from captioner.models import model_folder
    from captioner.translate import load_translator

    batch_size = 50 if arguments.batch_size is None else arguments.batch_size
    if batch_size < 1:
        raise UserError(f"--batch-size {batch_size} is not at least 1")
    translator = load_translator(model_folder(arguments.model), choose_device(arguments.device))
    search = search_options(arguments, translator.search)
    found = score_translator(
        translator, arguments.source, arguments.references, search, batch_size, **options
    )
    for line, lost in found.truncated.items():
        report_too_long(arguments.source, line, lost, translator.maximum_source_length)
    for line in found.cut:
        report_cut(arguments.source, line, search.maximum_length)
    return found
