"""Compare training runs by their best models' captions and maps of the validation photos.

The photos are seen as the runs saw them, from their feature stores, and captioned freely, by the
beam that each config names. Prints a table in Markdown: the scores, the mean entropy of the maps,
and how far the maps of two words of a caption differ.

  python scripts/compare_runs.py runs/teacher_soft runs/teacher_hard runs/teacher_self_critical
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from captioner.caption import Captioner, load_model
from captioner.cli.program import run_program
from captioner.data.source import Source
from captioner.errors import UserError
from captioner.evaluation.diversity import text_diversity
from captioner.evaluation.map_spread import map_spread
from captioner.model_folders import MODEL
from captioner.progress import progress_bar
from captioner.runs.annotation_rows import StoredRows, annotation_batches, readable
from captioner.runs.captioning_recipe import SCORES, CaptioningRecipe, read_recipe
from captioner.runs.captioning_task import scores_of
from captioner.runs.feature_extraction import seeded_encoder_of, store_folder
from captioner.runs.read_sources import read_sources
from captioner.runs.run_folder import CONFIG
from captioner.vision.feature_store import FeatureStore

COLUMNS = (*SCORES[:-1], "entropy", "divergence", "distinct", "vocabulary")


def measure(recipe: CaptioningRecipe, captioner: Captioner, store: FeatureStore) -> list[float]:
    """The figures of `COLUMNS` for a model on the validation photos of its recipe."""
    source: Source = read_sources(recipe.data)[1].first(recipe.validation.images)
    rows = readable(source, store)
    features = StoredRows(store)
    progress = progress_bar("captions", len(rows), "photos")
    captions = []
    size = recipe.validation.batch_size
    batches = [rows[first : first + size] for first in range(0, len(rows), size)]
    for vectors in annotation_batches(features, batches):
        captions += captioner.caption_annotations(vectors)
        progress.update(len(vectors))
    progress.close()
    texts = [caption.text for caption in captions]
    scores = scores_of(texts, source.take(rows))
    spread = map_spread([caption.attention for caption in captions if caption.words])
    varied = text_diversity([caption.words for caption in captions])
    return [
        *(scores[name] for name in SCORES[:-1]),
        spread.entropy,
        spread.divergence or 0.0,
        varied.distinct_captions,
        varied.vocabulary,
    ]


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="the folder of a run")
    arguments = parser.parse_args()
    print(f"| | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}", flush=True)
    for run in arguments.runs:
        recipe = read_recipe(run / CONFIG)
        if recipe.encoder.train or recipe.data.format == "shapes":
            raise UserError(f"{run} has no stored features of photos")
        folder = store_folder(recipe, run, seeded_encoder_of(recipe))
        found = measure(recipe, load_model(run / MODEL), FeatureStore(folder / "validation"))
        cells = [f"{value:.3f}" if isinstance(value, float) else str(value) for value in found]
        print(f"| {run.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
