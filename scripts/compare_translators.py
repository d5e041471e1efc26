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
from dataclasses import dataclass
from pathlib import Path

from captioner.cli.output_files import check_outputs
from captioner.cli.program import run_program
from captioner.cli.shared_options import add_device
from captioner.data.parallel import read_parallel
from captioner.devices import choose_device
from captioner.errors import UserError
from captioner.evaluation.translation_report import TranslationReport, score_translator
from captioner.files import write_json
from captioner.models import load_translator
from captioner.render.save import PLOT_SUFFIXES, check_suffix, save_figure
from captioner.translate import TranslationSearch, Translator

BATCH_SIZE = 100
MODEL = "model"

LINES = (
    ("#c2410c", "-", "o"),
    ("#1d4ed8", "--", "s"),
    ("#047857", "-.", "^"),
    ("#7c3aed", ":", "D"),
    ("#4b5563", "-", "v"),
    ("#b45309", "--", "P"),
    ("#0e7490", "-.", "X"),
    ("#be185d", ":", "*"),
)
"""Colour, dashes and marker of each line; lines can be told apart without colour."""


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


def searches(own: TranslationSearch, beam: int, exponents: list[float]) -> list[TranslationSearch]:
    """A model's own search with this beam, and with each exponent of the length normalisation.

    Raises `UserError` for values out of range.
    """
    return [own.replace(beam=beam, length_normalisation=exponent) for exponent in exponents]


def compare(
    name: str,
    translator: Translator,
    source: Path,
    references: Path,
    exponents: list[float],
    beam: int,
) -> Comparison:
    """Translate with each exponent of the length normalisation, and keep what scores best.

    name: what the translator is called. Of equals, the first exponent is kept. Raises `UserError`
    as its search options and scoring do.
    """
    reports = {
        search.length_normalisation: score_translator(
            translator, source, references, search, BATCH_SIZE
        )
        for search in searches(translator.search, beam, exponents)
    }
    bleu = {exponent: report.scores.bleu for exponent, report in reports.items()}
    best = max(exponents, key=lambda exponent: bleu[exponent])
    parameters = sum(weight.numel() for weight in translator.model.parameters())
    return Comparison(name, parameters, best, bleu, reports[best])


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


def cut_lines(compared: list[Comparison]) -> list[str]:
    """What was cut, a line for each translator that cut anything."""
    return [
        f"{each.name} cut {len(each.report.truncated):,} sources, too long to be read whole, and "
        f"{len(each.report.cut):,} translations, at the longest length"
        for each in compared
        if each.report.truncated or each.report.cut
    ]


def draw_lengths(path: Path, compared: list[Comparison]) -> None:
    """Plot BLEU against the length of the source, as Bahdanau et al. 2014, figure 2."""
    from matplotlib.figure import Figure  # Imported here: matplotlib takes half a second.

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axis = figure.subplots()
    buckets = compared[0].report.lengths
    for each, (colour, dashes, mark) in zip(compared, LINES, strict=False):
        scores = [bucket.bleu for bucket in each.report.lengths]
        axis.plot(scores, dashes, color=colour, marker=mark, linewidth=2, label=each.name)
    labels = [f"{each.first} to {each.last}\n({each.sentences:,})" for each in buckets]
    axis.set_xticks(range(len(buckets)), labels)
    axis.set(xlabel="words of the source (sentences)", ylabel="BLEU")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    save_figure(path, figure)


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
    add_device(parser)
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
        check_suffix(arguments.picture, PLOT_SUFFIXES)
        if len(names) > len(LINES):
            raise UserError(f"--picture can tell {len(LINES)} models apart, not {len(names)}")
    check_outputs(arguments, ("--source", "--references"), ("--json", "--picture"))
    device = choose_device(arguments.device)
    translators = []
    for folder in arguments.models:  # All of them, before the first is put to work.
        translator = load_translator(folder, device, "float32")
        searches(translator.search, arguments.beam, arguments.length_normalisation)
        translators.append(translator)
    read_parallel(arguments.source, arguments.references)
    print("| | weights, M | BLEU | chrF | brevity penalty | exponent | BLEU by exponent |")
    print("|---|---|---|---|---|---|---|", flush=True)
    compared = []
    for name, translator in zip(names, translators, strict=True):
        each = compare(
            name,
            translator,
            arguments.source,
            arguments.references,
            arguments.length_normalisation,
            arguments.beam,
        )
        compared.append(each)
        print(scores_row(each), flush=True)
    print(f"\n{lengths_table(compared)}\n")
    for line in cut_lines(compared):
        print(line)
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
        draw_lengths(arguments.picture, compared)


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
