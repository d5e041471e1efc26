"""What captions score that do not look at the photo: the floor under every captioner.

1. One sentence for every photo: of all training captions, the one that scores best on the very
   photos it is judged on. All are ranked on a sample of the validation photos, the best are
   scored on all of them.
2. A decoder trained as CONFIG says, but on zeros in place of annotation vectors. Its memory has
   one place instead of 196: attention over equal places gives the same context whatever their
   number, so this is the same decoder at a fraction of the cost. The doubly stochastic term, which
   says only where to look, is left out.

  python scripts/caption_baselines.py configs/flickr8k_small_soft.yaml --out runs/baselines
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from captioner.backends.torch_captions import TorchCaptions, make_decoder
from captioner.caption.captioner import Captioner
from captioner.cli.program import run_program, script_parser
from captioner.data.example import Example
from captioner.evaluation.coco_metrics import DocumentFrequency, cider_d
from captioner.evaluation.corpus import Corpus
from captioner.models.caption_losses import CaptioningLoss, ObjectiveConfig
from captioner.progress import progress_bar
from captioner.runs.batches import CaptionBatches
from captioner.runs.caption_scores import scores_of
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.photos import StoredRows, read_training
from captioner.runs.read_recipe import read_recipe
from captioner.text.vocabulary import Vocabulary
from captioner.training.distributed import Processes
from captioner.training.loop import Trainer, Validated, Validation
from captioner.training.optimizer import make_optimizer
from captioner.vision.encoder import ANNOTATION_SIZE, VGGEncoder
from captioner.vision.encoder_config import VGGConfig

SAMPLE = 40
"""Validation photos that all captions are ranked on."""

SHORTLIST = 100
"""Captions that are scored on all validation photos."""


class ZeroRows(StoredRows):
    """In place of a feature store: zeros."""

    def __init__(self) -> None:
        pass

    def read(
        self, rows: Tensor, part: Any = slice(None), generator: torch.Generator | None = None
    ) -> tuple[Tensor, None]:
        """A part of the rows (B,) -> zeros (B, 1, D)."""
        return torch.zeros(len(rows[part]), 1, ANNOTATION_SIZE), None


def best_constant(training: Sequence[Example], validation: Sequence[Example]) -> str:
    """The training caption that, said of every validation photo, has the best CIDEr-D."""
    candidates = sorted({tuple(words) for each in training for words in each.words if words})
    references = [each.words for each in validation]
    frequency = DocumentFrequency.from_references(references)

    def score(caption: tuple[str, ...], references: Sequence[Sequence[Sequence[str]]]) -> float:
        corpus = Corpus([caption] * len(references), references)
        return float(cider_d(corpus, frequency).scores[0])

    few = references[:: max(1, len(validation) // SAMPLE)][:SAMPLE]
    with progress_bar("ranking", len(candidates), "captions") as progress:
        ranked = []
        for caption in candidates:
            ranked.append((score(caption, few), caption))
            progress.update()
    shortlist = [caption for _, caption in sorted(ranked, reverse=True)[:SHORTLIST]]
    return " ".join(max(shortlist, key=lambda caption: score(caption, references)))


def blind_decoder(
    recipe: CaptioningRecipe,
    training: Sequence[Example],
    validation: Sequence[Example],
    folder: Path,
) -> tuple[str, dict[str, float]]:
    """Train on zeros; the caption it has for every photo, and the best validation scores."""
    words = chain.from_iterable(each.words for each in training)
    vocabulary = Vocabulary.build(words, recipe.minimum_count)
    torch.manual_seed(recipe.training.seed)
    decoder = make_decoder(recipe.decoder, len(vocabulary))
    encoder = VGGEncoder(VGGConfig(name="vgg11", width=0.01))  # Never asked.
    networks = TorchCaptions(encoder, decoder, vocabulary, recipe.preprocessing)
    captioner = Captioner(networks, recipe.search)
    rows, columns = captioner.map_shape
    nothing = torch.zeros(1, rows * columns, ANNOTATION_SIZE)  # (1, L, D)
    best: tuple[str, dict[str, float]] = ("", {})

    def validate() -> Validated:
        caption = captioner.caption_annotations(nothing)[0].text
        captions = [caption] * len(validation)
        return Validated(scores_of(captions, validation), captions)

    def keep(validated: Validated, epoch: int) -> None:
        nonlocal best
        best = (validated.texts[0], validated.scores)

    smoothing = recipe.objective.label_smoothing
    objective = ObjectiveConfig(doubly_stochastic=0.0, label_smoothing=smoothing)
    loss, config = CaptioningLoss(decoder, objective), recipe.training
    batches = CaptionBatches(training, range(len(training)), vocabulary, ZeroRows(), recipe)
    scored = Validation(validate, recipe.validation.score, keep)
    optimizer = make_optimizer(loss, config)
    Trainer(loss, batches, config, folder, optimizer, Processes(), scored).train()
    return best


def main() -> None:
    """Run both baselines and print their scores."""
    parser = script_parser(__doc__)
    parser.add_argument("config", help="a training config (configs/flickr8k_small_soft.yaml)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the blind run")
    arguments = parser.parse_args()
    recipe = read_recipe(arguments.config)
    training, validation, _ = read_training(recipe.data)
    caption = best_constant(training, validation)
    constant = (caption, scores_of([caption] * len(validation), validation))
    blind = blind_decoder(recipe, training, validation, arguments.out)
    for name, (said, scores) in (("best constant caption", constant), ("blind decoder", blind)):
        print(f"{name}: {said!r}")
        print("  " + ", ".join(f"{key} {value:.4f}" for key, value in scores.items()))


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
