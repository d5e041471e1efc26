"""Compare translators by what they make of one text: scores, and BLEU against its length.

The exponent of the length normalisation is chosen for each model, from those given, by its BLEU:
so give the validation text. Of equals, the first is taken. Prints tables in Markdown, and can draw
the lengths.

  python scripts/compare_translators.py runs/multi30k_en_de/model runs/multi30k_en_de_gnmt/model \\
      --source data/multi30k/val.en.gz --references data/multi30k/val.de.gz --picture lengths.png
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from captioner.backends.torch_translations import load_translation_model
from captioner.cli.program import run_program, script_parser
from captioner.devices import choose_device
from captioner.evaluation.translations import TranslationScores, score_translator
from captioner.files import atomic_path
from captioner.loading import load_translator
from captioner.model_folders import ModelFolder, model_folder
from captioner.render.overlay import check_suffix
from captioner.translate.translator import Translator

BEAM, BATCH_SIZE = 5, 100

COLOURS = ("#c2410c", "#1d4ed8", "#047857", "#7c3aed", "#4b5563", "#b45309", "#0e7490", "#be185d")
DASHES, MARKERS = ("-", "--", "-.", ":") * 2, "os^DvPX*"
"""Of the lines, which can be told apart without colour."""


def compare(
    name: str,
    folder: Path,
    translator: Translator,
    source: Path,
    references: Path,
    exponents: Sequence[float],
) -> TranslationScores:
    """Translate with each exponent, print a row of the table, and return the best report."""
    reports = {}
    for exponent in exponents:
        search = translator.search.replace(beam=BEAM, length_normalisation=exponent)
        reports[exponent] = score_translator(translator, source, references, search, BATCH_SIZE)
    best = max(reports, key=lambda exponent: reports[exponent].scores["BLEU"])
    bleu, penalty, chrf, _ = reports[best].scores.values()
    model = load_translation_model(ModelFolder(model_folder(folder))).model
    parameters = sum(weight.numel() for weight in model.parameters())
    cells = (
        *(name, f"{parameters / 1e6:.2f}", f"{bleu:.1f}", f"{chrf:.1f}", f"{penalty:.3f}"),
        f"{best:g}",
        ", ".join(f"{at:g}: {each.scores['BLEU']:.1f}" for at, each in reports.items()),
    )
    print(f"| {' | '.join(cells)} |", flush=True)
    return reports[best]


def draw_lengths(path: Path, reports: list[tuple[str, TranslationScores]]) -> None:
    """Plot BLEU against the length of the source, as Bahdanau et al. 2014, figure 2."""
    from matplotlib.figure import Figure  # Imported here: matplotlib takes half a second.

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axis = figure.subplots()
    axis.set_prop_cycle(color=COLOURS, linestyle=DASHES, marker=list(MARKERS))
    for name, report in reports:
        axis.plot([bucket["BLEU"] for bucket in report.lengths], linewidth=2, label=name)
    labels = [_label(bucket, "\n") for bucket in reports[0][1].lengths]
    axis.set_xticks(range(len(labels)), labels)
    axis.set(xlabel="words of the source (sentences)", ylabel="BLEU")
    axis.set_ylim(bottom=0)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)


def _label(bucket: dict[str, Any], between: str) -> str:
    first, last = bucket["words"]
    return f"{first} to {last}{between}({bucket['sentences']:,})"


def main() -> None:
    """Compare."""
    parser = script_parser(__doc__)
    parser.add_argument(
        "models", nargs="+", type=Path, metavar="MODEL", help="a folder, or a packaged model's name"
    )
    for name, what in (("source", "to translate"), ("references", "what people made of it")):
        parser.add_argument(f"--{name}", type=Path, required=True, metavar="FILE", help=what)
    parser.add_argument(
        "--length-normalisation",
        type=float,
        nargs="+",
        default=[0.6, 1.0, 1.4, 1.8],
        metavar="ALPHA",
        help="exponents to choose from, for each model (default: 0.6 1 1.4 1.8)",
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw BLEU against length")
    arguments = parser.parse_args()
    if arguments.picture:
        check_suffix(arguments.picture, (".png", ".pdf", ".svg"))
    names = [path.parent.name if path.name == "model" else path.name for path in arguments.models]
    # All of them, before the first is put to work.
    translators = [load_translator(path, choose_device(), "float32") for path in arguments.models]
    print("| | weights, M | BLEU | chrF | brevity penalty | exponent | BLEU by exponent |")
    print("|---|---|---|---|---|---|---|", flush=True)
    texts = arguments.source, arguments.references
    reports = [
        (name, compare(name, folder, translator, *texts, arguments.length_normalisation))
        for name, folder, translator in zip(names, arguments.models, translators, strict=True)
    ]
    first = reports[0][1]
    columns = [_label(bucket, " ") for bucket in first.lengths]
    print(f"\n| words of the source (sentences) | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for name, report in reports:
        cells = " | ".join(f"{bucket['BLEU']:.1f}" for bucket in report.lengths)
        print(f"| {name} | {cells} |")
    print()
    for name, signature in first.signatures.items():
        print(f"{name} {signature}")
    if arguments.picture:
        draw_lengths(arguments.picture, reports)


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
