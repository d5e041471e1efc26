"""Fill the feature stores of a config with the teachers' annotation vectors.

A decoder is trained on what good networks see before an encoder of our own sees the same: the
ceiling of that encoder, and the reader it is fine-tuned with. Vectors are `teachers.TeacherMaps`,
512 numbers at each of 14x14 places.

The config's `encoder.weights` names a file that is written where there is none: random weights that
stand in for the teachers. A model trained on these stores cannot caption a photo until `fold.py`
gives it an encoder.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from teachers import Detector, TeacherMaps
from torch import Tensor

from captioner.cli.program import run_program
from captioner.errors import UserError
from captioner.files import atomic_path
from captioner.runs.captioning_recipe import read_recipe
from captioner.runs.feature_extraction import (
    encoder_of,
    extraction_progress,
    fill_stores,
    source_stores,
    sources_to_store,
)
from captioner.vision.preprocessing import IMAGENET_MEAN, IMAGENET_STANDARD_DEVIATION
from captioner.vision.vgg import VGGEncoder
from captioner.vision.weights import IMAGENET, RANDOM


class TeacherEncoder(VGGEncoder):
    """The teachers in the place of an encoder: the same call, the same shapes."""

    def __init__(self, stand_in: VGGEncoder, folder: Path) -> None:
        super().__init__(stand_in.config)
        self.maps = TeacherMaps(folder)
        self.detector = Detector(folder)
        for name, values in (("mean", IMAGENET_MEAN), ("deviation", IMAGENET_STANDARD_DEVIATION)):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Preprocessed photos (B, 3, S, S) -> annotation vectors (B, L, 512)."""
        photos = (pixels * self.deviation + self.mean).clamp(0, 1)  # (B, 3, S, S)
        maps: Tensor = self.maps(photos, self.detector(photos))  # (B, 512, S/16, S/16)
        return maps.flatten(2).transpose(1, 2)  # (B, L, 512)


def main() -> None:
    """Fill the stores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="a YAML file with features.folder and encoder.weights")
    parser.add_argument("--teachers", type=Path, required=True, help="folder of the teachers")
    parser.add_argument("--readout", type=Path, required=True, help="of distill.py: the scales")
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="FIELD=VALUE")
    arguments = parser.parse_args()
    recipe = read_recipe(arguments.config, arguments.changes)
    if recipe.encoder.weights in (IMAGENET, RANDOM):
        raise UserError(
            f"{arguments.config}: encoder.weights must name a file, to stand for the teachers"
        )
    sources = sources_to_store(recipe)
    weights = Path(recipe.encoder.weights)
    if not weights.exists():
        torch.manual_seed(0)
        with atomic_path(weights) as temporary:
            save_file(VGGEncoder(recipe.encoder.config).state_dict(), temporary)
    stand_in = encoder_of(recipe)
    assert recipe.features.folder is not None  # `sources_to_store` refuses that.
    stores = source_stores(recipe, recipe.features.folder, stand_in, sources)
    encoder = TeacherEncoder(stand_in, arguments.teachers).eval()
    encoder.maps.read_scales(arguments.readout)
    with extraction_progress(list(stores.values())) as report:
        fill_stores(list(stores.values()), encoder, report=report)
    for name, store in stores.items():
        print(f"{name}: {len(store.open()):,} images in {store.folder}")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
