"""Compare translators by what they make of one text: scores, and BLEU against its length.

The exponent of the length normalisation is chosen for each model, from those given, by its BLEU:
so give the validation text. Prints tables in Markdown, and can draw the lengths.

  python scripts/compare_translators.py runs/multi30k_en_de/model runs/multi30k_en_de_gnmt/model \\
      --source data/multi30k/val.en.gz --references data/multi30k/val.de.gz --picture lengths.png
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import captioner
from captioner.cli.program import run_program
from captioner.devices import choose_device
from captioner.errors import UserError
from captioner.files import write_json
from captioner.recipes.translation_scoring import TranslationReport, score_translator
from captioner.render.curves import check_curves_path
from captioner.render.length_curves import LINES, save_length_curves

BATCH_SIZE = 100
MODEL = "model"


@dataclass(frozen=True)
class Comparison:
    """A translator, the exponent chosen for it, and what it scores with that.

    parameters: weights, counted once where they are shared.
    """

    name: str
    parameters: int
    exponent: float
    bleu_by_exponent: dict[float, float]
    report: TranslationReport


def name_of(folder: Path) -> str:
    """The name of a run, from the folder of its model."""
    whole = Path(os.path.abspath(folder))
    return whole.parent.name if whole.name == MODEL else whole.name


def compare(
    model: Path, source: Path, references: Path, exponents: list[float], beam: int
) -> Comparison:
    """Translate with each exponent of the length normalisation, and keep what scores best.

    model: a folder, or the name of a packaged model. Of equals, the first exponent is kept. Raises
    `UserError` as loading the model, its search options and scoring do.
    """
    translator = captioner.load_translator(model, choose_device("auto"))
    reports = {}
    for exponent in exponents:
        search = replace(translator.search, beam=beam, length_normalisation=exponent)
        reports[exponent] = score_translator(translator, source, references, search, BATCH_SIZE)
    bleu = {exponent: report.scores.bleu for exponent, report in reports.items()}
    best = max(exponents, key=lambda exponent: bleu[exponent])
    parameters = sum(weight.numel() for weight in translator.model.parameters())
    return Comparison(name_of(model), parameters, best, bleu, reports[best])


def scores_row(each: Comparison) -> str:
    """A line of the first table."""
    scores = each.report.scores
    cells = (
        f"{each.parameters / 1e6:.2f}",
        f"{scores.bleu:.1f}",
        f"{scores.chrf:.1f}",
        f"{scores.brevity_penalty:.3f}",
        f"{each.exponent:g}",
        ", ".join(f"{exponent:g}: {bleu:.1f}" for exponent, bleu in each.bleu_by_exponent.items()),
    )
    return f"| {each.name} | {' | '.join(cells)} |"


def lengths_table(compared: list[Comparison]) -> str:
    """BLEU for sentences of each length."""
    columns = [
        f"{bucket.first} to {bucket.last} ({bucket.sentences:,})"
        for bucket in compared[0].report.lengths
    ]
    lines = [f"| words of the source (sentences) | {' | '.join(columns)} |"]
    lines.append(f"|---|{'---|' * len(columns)}")
    for each in compared:
        cells = [f"{bucket.bleu:.1f}" for bucket in each.report.lengths]
        lines.append(f"| {each.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "models", nargs="+", type=Path, metavar="MODEL", help="a folder, or a packaged model's name"
    )
    parser.add_argument("--source", type=Path, required=True, metavar="FILE", help="to translate")
    parser.add_argument(
        "--references", type=Path, required=True, metavar="FILE", help="what people made of it"
    )
    parser.add_argument("--beam", type=int, default=5, help="beam size (default: %(default)s)")
    parser.add_argument(
        "--length-normalisation",
        type=float,
        nargs="+",
        default=[0.6, 1.0, 1.4, 1.8],
        metavar="ALPHA",
        help="exponents to choose from, for each model (default: 0.6 1 1.4 1.8)",
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw BLEU against length")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    arguments = parser.parse_args()
    names = [name_of(folder) for folder in arguments.models]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two of the models are called {name}")
    if arguments.picture:
        check_curves_path(arguments.picture)
        if len(names) > len(LINES):
            raise UserError(f"--picture can tell {len(LINES)} models apart, not {len(names)}")
    print("| | weights, M | BLEU | chrF | brevity penalty | exponent | BLEU by exponent |")
    print("|---|---|---|---|---|---|---|", flush=True)
    compared = []
    for folder in arguments.models:
        each = compare(
            folder,
            arguments.source,
            arguments.references,
            arguments.length_normalisation,
            arguments.beam,
        )
        compared.append(each)
        print(scores_row(each), flush=True)
    print(f"\n{lengths_table(compared)}\n")
    print(f"BLEU {compared[0].report.scores.bleu_signature}")
    print(f"chrF {compared[0].report.scores.chrf_signature}", flush=True)
    if arguments.json:
        write_json(
            arguments.json,
            {
                each.name: {
                    "parameters": each.parameters,
                    "length_normalisation": each.exponent,
                    "BLEU by length_normalisation": {
                        f"{exponent:g}": bleu for exponent, bleu in each.bleu_by_exponent.items()
                    },
                    **each.report.as_dict(),
                }
                for each in compared
            },
        )
    if arguments.picture:
        lengths = {each.name: each.report.lengths for each in compared}
        save_length_curves(arguments.picture, lengths)


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
