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

from captioner.cli.program import run_program
from captioner.devices import choose_device
from captioner.errors import UserError
from captioner.files import write_json
from captioner.recipes.translation_scoring import TranslationReport, score_translator
from captioner.render.length_curves import save_length_curves
from captioner.translate import load_translator

BATCH_SIZE = 100
MODEL = "model"


@dataclass(frozen=True)
class Compared:
    """A translator, the exponent chosen for it, and what it scores with that.

    parameters: weights, counted once where they are shared. tried: BLEU by exponent.
    """

    name: str
    parameters: int
    exponent: float
    tried: dict[float, float]
    found: TranslationReport


def name_of(folder: Path) -> str:
    """The name of a run, from the folder of its model."""
    resolved = Path(os.path.abspath(folder))
    return resolved.parent.name if resolved.name == MODEL else resolved.name


def compare(
    folder: Path, source: Path, references: Path, exponents: list[float], beam: int
) -> Compared:
    """Translate with each exponent, and keep what scores best; the first of equals."""
    translator = load_translator(folder, choose_device("auto"))
    reports = {}
    for exponent in exponents:
        search = replace(translator.search, beam=beam, length_normalisation=exponent)
        reports[exponent] = score_translator(translator, source, references, search, BATCH_SIZE)
    tried = {exponent: report.scores.bleu for exponent, report in reports.items()}
    best = max(exponents, key=lambda exponent: tried[exponent])
    parameters = sum(weight.numel() for weight in translator.model.parameters())
    return Compared(name_of(folder), parameters, best, tried, reports[best])


def scores_row(each: Compared) -> str:
    """A line of the first table."""
    scores = each.found.scores
    cells = (
        f"{each.parameters / 1e6:.2f}",
        f"{scores.bleu:.1f}",
        f"{scores.chrf:.1f}",
        f"{scores.brevity_penalty:.3f}",
        f"{each.exponent:g}",
        ", ".join(f"{exponent:g}: {bleu:.1f}" for exponent, bleu in each.tried.items()),
    )
    return f"| {each.name} | {' | '.join(cells)} |"


def lengths_table(compared: list[Compared]) -> str:
    """BLEU for sentences of each length."""
    columns = [
        f"{bucket.first} to {bucket.last} ({bucket.sentences:,})"
        for bucket in compared[0].found.lengths
    ]
    lines = [f"| words of the source (sentences) | {' | '.join(columns)} |"]
    lines.append(f"|---|{'---|' * len(columns)}")
    for each in compared:
        cells = [f"{bucket.bleu:.1f}" for bucket in each.found.lengths]
        lines.append(f"| {each.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="a model's folder")
    parser.add_argument("--source", type=Path, required=True, metavar="FILE", help="to translate")
    parser.add_argument("--references", type=Path, required=True, metavar="FILE")
    parser.add_argument("--beam", type=int, default=5)
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
    print(f"BLEU {compared[0].found.scores.bleu_signature}")
    print(f"chrF {compared[0].found.scores.chrf_signature}", flush=True)
    if arguments.json:
        write_json(
            arguments.json,
            {
                each.name: {
                    "parameters": each.parameters,
                    "length_normalisation": each.exponent,
                    "BLEU by length_normalisation": {
                        f"{at:g}": to for at, to in each.tried.items()
                    },
                    **each.found.as_dict(),
                }
                for each in compared
            },
        )
    if arguments.picture:
        lengths = {each.name: each.found.lengths for each in compared}
        save_length_curves(arguments.picture, lengths)


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
