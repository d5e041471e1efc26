"""Fill the feature stores of a config with the teachers' annotation vectors.

A decoder that is then trained on them is the ceiling of an encoder that is to see the same. Vectors
are `teachers.TeacherMaps`, 512 numbers at each of 14x14 places, scaled over a sample of the photos;
the scales are kept in a file.

The config's `encoder.weights` names a file that is written if it is missing: random weights that
stand in for the teachers. A model trained on these stores cannot caption a photo.

  python scripts/default_model/teacher_features.py configs/default_model.yaml \\
      --teachers data/teachers --scales runs/ceiling/scales.safetensors \\
      --set features.folder=runs/ceiling/features encoder.weights=runs/ceiling/stand_in.safetensors
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from photos import batches, load_photos
from teachers import TeacherMaps
from torch import Tensor, nn

from captioner.cli.program import run_program, script_parser
from captioner.module_weights import write_tensors
from captioner.runs.captioning_recipe import CaptioningRecipe
from captioner.runs.features import encoder_of, extract_features
from captioner.runs.photos import read_training
from captioner.runs.read_recipe import read_recipe
from captioner.training.distributed import Processes
from captioner.vision.encoder import Encoder
from captioner.vision.encoder_families import make_encoder

SAMPLE = 400
"""Photos over which channels are scaled."""


class NetworkEncoder(nn.Module):
    """A network in place of a recipe's encoder: takes preprocessed photos.

    network: photos (B, 3, size, size) in [0, 1] -> (B, L, D).
    """

    def __init__(self, recipe: CaptioningRecipe, network: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        preprocessing = recipe.preprocessing
        stand_in = encoder_of(recipe.encoder)
        self.config, self.annotation_size = stand_in.config, stand_in.annotation_size
        self.digest, self.map_shape = stand_in.digest, stand_in.map_shape
        self.network = network
        mean = torch.tensor(preprocessing.mean).view(1, 3, 1, 1)
        self.mean = nn.Parameter(mean, requires_grad=False)  # `encode` asks for its type.
        self.deviation = torch.tensor(preprocessing.standard_deviation).view(1, 3, 1, 1)

    encode = Encoder.encode

    def for_inference(self, precision: torch.dtype) -> NetworkEncoder:
        """Itself: the network has its own precision."""
        return self

    def forward(self, pixels: Tensor) -> Tensor:
        """Photos as the recipe preprocesses them, (B, 3, size, size) -> (B, L, D)."""
        return self.network((pixels * self.deviation + self.mean).clamp(0, 1))


def fill_with_network(recipe: CaptioningRecipe, network: Callable[[Tensor], Tensor]) -> None:
    """Fill a recipe's stores with another network's annotation vectors, see `NetworkEncoder`."""
    weights = Path(recipe.encoder.weights)
    if not weights.exists():
        torch.manual_seed(0)
        write_tensors(weights, make_encoder(recipe.encoder.config).state_dict())
    encoder = NetworkEncoder(recipe, network)
    extract_features(recipe, Processes(), encoder)


def main() -> None:
    """Fill the stores."""
    parser = script_parser(__doc__)
    parser.add_argument("config", help="a YAML file with features.folder and encoder.weights")
    parser.add_argument("--teachers", type=Path, required=True, help="folder of the teachers")
    parser.add_argument(
        "--scales", type=Path, required=True, help="the channels' scales; written if missing"
    )
    parser.add_argument("--set", nargs="+", default=[], dest="changes", metavar="FIELD=VALUE")
    arguments = parser.parse_args()
    recipe = read_recipe(arguments.config, arguments.changes)
    precision = recipe.features.precision
    if not arguments.scales.exists():
        paths = [Path(str(each.source)) for each in read_training(recipe.data)[0]]
        sample = random.Random(0).sample(paths, min(SAMPLE, len(paths)))
        loaded = batches(load_photos(sample))
        TeacherMaps(arguments.teachers, precision).fit(loaded, arguments.scales)
    maps = TeacherMaps(arguments.teachers, precision, arguments.scales)
    fill_with_network(recipe, lambda photos: maps(photos).flatten(2).transpose(1, 2))  # (B, L, 512)


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
