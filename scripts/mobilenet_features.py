"""Fill the feature stores of a config with a MobileNet's annotation vectors in place of VGG's.

For development without VGG's weights: block 11 of MobileNet v1 (Howard et al. 2017, batch
normalisation folded into the convolutions) gives 14x14 vectors of 512 numbers for a photo of 224
pixels, the shape of the annotation vectors of Xu et al. 2015. Each channel is divided by its
standard deviation over the first training photos.

The config's `encoder.weights` names a file that is written where there is none: random weights that
stand in for the MobileNet's. A model trained on these stores is validated on them, but cannot
caption a photo.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from default_model.network_features import fill_with_network
from torch import Tensor, nn
from torch.nn import functional

from captioner.cli.program import run_program
from captioner.data.source import Source
from captioner.errors import UserError
from captioner.runs.captioning_recipe import CaptioningRecipe, read_recipe
from captioner.runs.feature_extraction import sources_to_store
from captioner.weight_files import read_tensors

SAMPLE = 300
"""Photos over which the standard deviation of a channel is taken."""

LAST = 11
"""The block whose map is taken."""


class MobileNet(nn.Module):
    """MobileNet v1 up to block 11, from a safetensors file of folded weights; not trained."""

    def __init__(self, file: Path) -> None:
        """Read the weights.

        Raises `UserError` for a file that cannot be read, and for a tensor that is missing or does
        not fit the layer before it.
        """
        super().__init__()
        tensors = read_tensors(file)
        channels = 3

        def take(name: str, groups: int, outputs: int | None = None) -> int:
            """Register a layer; the number of its output channels."""
            kernel = 1 if name.startswith("pointwise") else 3
            for part in (f"{name}.weight", f"{name}.bias"):
                if part not in tensors:
                    raise UserError(f"MobileNet {file} has no tensor {part!r}")
            weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
            outputs = outputs or (len(weight) if weight.ndim else 1)
            for part, tensor, shape in (
                ("weight", weight, (outputs, channels // groups, kernel, kernel)),
                ("bias", bias, (outputs,)),
            ):
                if tuple(tensor.shape) != shape:
                    raise UserError(
                        f"MobileNet {file}: tensor '{name}.{part}' is {tuple(tensor.shape)}, "
                        f"not {shape}"
                    )
                parameter = nn.Parameter(tensor.float(), requires_grad=False)
                self.register_parameter(f"{name}_{part}", parameter)
            return outputs

        channels = take("conv1", 1)
        for block in range(1, LAST + 1):
            take(f"depthwise{block}", channels, channels)
            channels = take(f"pointwise{block}", 1, 512 if block == LAST else None)

    def weights(self, name: str) -> tuple[Tensor, Tensor]:
        """Weight and bias of a layer."""
        return getattr(self, f"{name}_weight"), getattr(self, f"{name}_bias")

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels (B, 3, S, S) in [0, 1] -> block 11, (B, 512, S/16, S/16)."""
        hidden = functional.pad(pixels * 2 - 1, (0, 1, 0, 1))  # (B, 3, S + 1, S + 1)
        hidden = functional.relu6(  # (B, C, S/2, S/2)
            functional.conv2d(hidden, *self.weights("conv1"), stride=2)
        )
        for block in range(1, LAST + 1):
            weight, bias = self.weights(f"depthwise{block}")
            stride = 2 if block in (2, 4, 6) else 1
            # (B, C, s + 1, s + 1) or, of stride 1, (B, C, s + 2, s + 2)
            hidden = functional.pad(hidden, (0, 1, 0, 1) if stride == 2 else (1, 1, 1, 1))
            # (B, C, s / stride, s / stride)
            hidden = functional.conv2d(hidden, weight, bias, stride=stride, groups=len(weight))
            pointwise = self.weights(f"pointwise{block}")  # (C', C, 1, 1) and (C',)
            # (B, C', s / stride, s / stride)
            hidden = functional.relu6(functional.conv2d(functional.relu6(hidden), *pointwise))
        return hidden


def channel_deviations(network: MobileNet, recipe: CaptioningRecipe, source: Source) -> Tensor:
    """The standard deviation of every channel over the first photos of a source: (512, 1, 1)."""
    plain = recipe.preprocessing.replace(mean=(0, 0, 0), standard_deviation=(1, 1, 1))
    rows = range(min(SAMPLE, len(source)))
    maps = [network(plain.batch([source.open_photo(row)])) for row in rows]
    return torch.cat(maps).std(dim=(0, 2, 3)).clamp(min=1e-2).view(-1, 1, 1)


def main() -> None:
    """Fill the stores."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("config", help="a YAML file with features.folder and encoder.weights")
    parser.add_argument(
        "--teacher", type=Path, required=True, help="mobilenet_v1_1.0_224.safetensors"
    )
    parser.add_argument("--set", action="append", default=[], dest="changes", metavar="FIELD=VALUE")
    arguments = parser.parse_args()
    recipe = read_recipe(arguments.config, arguments.changes)
    sources = sources_to_store(recipe)
    network = MobileNet(arguments.teacher)
    deviation = channel_deviations(network, recipe, sources["train"])  # (512, 1, 1)
    fill_with_network(
        recipe,
        sources,
        lambda photos: (network(photos) / deviation).flatten(2).transpose(1, 2),  # (B, L, 512)
    )


if __name__ == "__main__":
    sys.exit(run_program(main, Path(__file__).stem))
