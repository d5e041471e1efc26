"""Fill the feature stores of a config with the teachers' annotation vectors.

A decoder that is then trained on them is the ceiling of an encoder that is to see the same. Vectors
are `teachers.TeacherMaps`, 512 numbers at each of 14x14 places.

The config's `encoder.weights` names a file that is written where there is none: random weights that
stand in for the teachers. A model trained on these stores cannot caption a photo.

  python scripts/default_model/teacher_features.py configs/default_model.yaml \\
      --teachers data/teachers --scales runs/tables/scales.safetensors \\
      --set features.folder=runs/ceiling/features encoder.weights=runs/ceiling/stand_in.safetensors
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from network_features import fill_with_network
from teachers import Detector, TeacherMaps, add_precision

from captioner.cli.program import run_program
from captioner.runs.captioning_recipe import read_recipe
from captioner.runs.feature_extraction import sources_to_store


def main() -> None:
    """Fill the stores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="a YAML file with features.folder and encoder.weights")
    parser.add_argument("--teachers", type=Path, required=True, help="folder of the teachers")
    parser.add_argument(
        "--scales", type=Path, required=True, help="scales.safetensors of tables.py"
    )
    add_precision(parser)
    parser.add_argument("--set", nargs="+", default=[], dest="changes", metavar="FIELD=VALUE")
    arguments = parser.parse_args()
    recipe = read_recipe(arguments.config, arguments.changes)
    sources = sources_to_store(recipe)
    maps = TeacherMaps(arguments.teachers, arguments.precision)
    maps.read_scales(arguments.scales)
    detector = Detector(arguments.teachers, arguments.precision)
    fill_with_network(
        recipe,
        sources,
        lambda photos: maps(photos, detector(photos)).flatten(2).transpose(1, 2),  # (B, L, 512)
    )


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
