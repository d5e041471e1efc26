"""Fill the feature stores of a config with a teacher's annotation vectors in place of VGG's.

Where no VGG weights can be had: the decoder is then trained on what a good network sees, 14x14
vectors of 512 numbers, and everything behind the encoder is what it is with VGG. Each channel is
divided by its standard deviation over the first training photos, so that all count alike.

The config's `encoder.weights` names a file that is written where there is none: weights drawn at
random, which stand for the teacher's. A model that is trained on these stores can be validated
and measured on them, but cannot caption a photo: its own encoder does not see. Eyes that stand for
the teacher's are what `scripts/default_model/distill_encoder.py --decoder` gives it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from teacher import Teacher
from torch import Tensor

from captioner.cli.program import run_program
from captioner.data.source import Source
from captioner.errors import UserError
from captioner.files import atomic_path
from captioner.runs.captioning_recipe import CaptioningRecipe, read_recipe
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

SAMPLE = 300
"""Photos over which the standard deviation of a channel is taken."""


class TeacherEncoder(VGGEncoder):
    """The teacher in the place of an encoder: the same call, the same shapes."""

    def __init__(self, stand_in: VGGEncoder, teacher: Teacher) -> None:
        super().__init__(stand_in.config)
        self.teacher = teacher
        self.register_buffer("mean", torch.tensor(IMAGENET_MEAN).view(1, 3, 1, 1))
        self.register_buffer(
            "deviation", torch.tensor(IMAGENET_STANDARD_DEVIATION).view(1, 3, 1, 1)
        )
        self.register_buffer("scale", torch.ones(1, 1, 512))

    def forward(self, pixels: Tensor) -> Tensor:
        """Preprocessed photos (B, 3, S, S) -> annotation vectors (B, L, 512)."""
        block_11, _ = self.teacher(pixels * self.deviation + self.mean)  # (B, 512, S/16, S/16)
        vectors: Tensor = block_11.flatten(2).transpose(1, 2) / self.scale  # (B, L, 512)
        return vectors

    def set_scale(self, recipe: CaptioningRecipe, source: Source) -> None:
        """Make every channel's standard deviation over the first photos of a source one."""
        maps = [
            self(recipe.preprocessing.batch([source.open_photo(row)]))
            for row in range(min(SAMPLE, len(source)))
        ]
        deviation = torch.cat(maps).std(dim=(0, 1))  # (512,)
        self.scale = deviation.clamp(min=1e-2).view(1, 1, -1)


def main() -> None:
    """Fill the stores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="a YAML file with features.folder and encoder.weights")
    parser.add_argument(
        "--teacher", type=Path, required=True, help="mobilenet_v1_1.0_224.safetensors"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="changes",
        metavar="FIELD=VALUE",
        help="change a field of the config; may be repeated",
    )
    arguments = parser.parse_args()
    recipe = read_recipe(arguments.config, arguments.changes)
    if recipe.encoder.weights in (IMAGENET, RANDOM):
        raise UserError(
            f"{arguments.config}: encoder.weights must name a file, to stand for the teacher"
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
    encoder = TeacherEncoder(stand_in, Teacher(arguments.teacher)).eval()
    with torch.no_grad():
        encoder.set_scale(recipe, sources["train"])
    with extraction_progress(list(stores.values())) as report:
        fill_stores(list(stores.values()), encoder, report=report)
    for name, store in stores.items():
        print(f"{name}: {len(store.open()):,} images in {store.folder}")


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
