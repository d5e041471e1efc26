"""The networks that the packaged model's encoder is distilled from.

`TeacherMaps` makes the target of the annotation vectors, 512 numbers at each place: blocks 10 and
15 of EfficientNet-Lite0 (112 and 320 channels) and a map of each of COCO's 80 things where the
detector sees them. The runner of the networks, `teachers.py`, lies beside their weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from captioner.devices import autocast
from captioner.errors import UserError
from captioner.files import atomic_path

GROUPS = {"block 10": 112, "block 15": 320, "things": 80}
"""Channels of the target, in order; 512 together."""

DETECTOR_SIZE = 300
"""Side in pixels of the photos that the detector was trained on."""

AT_ONCE = 4
"""Photos that a network sees at once: 32 take twice as long a photo, since they leave the cache."""

SCALES = "scales.safetensors"
"""In the folder of `tables.py`: mean and deviation of each channel of `TeacherMaps`."""

LEAST_SCORE = 0.15
"""Detections below it are dropped."""


class Boxes(NamedTuple):
    """Detections of one photo: labels (M,), scores (M,), corners (M, 4).

    labels: indices into the 80 classes. corners: left, top, right, bottom in 0..1.
    """

    labels: Tensor
    scores: Tensor
    corners: Tensor


def add_precision(parser: argparse.ArgumentParser, default: str = "float32") -> None:
    """Add `--precision`."""
    parser.add_argument(
        "--precision",
        choices=("float32", "bfloat16"),
        default=default,
        help="of products; bfloat16 is four times as fast on a processor that has it "
        "(default: %(default)s)",
    )


def load_teacher(folder: Path, name: str, precision: str = "float32") -> Any:
    """A network of the folder, in evaluation mode, without gradients.

    precision: of its products, `float32` or `bfloat16`.
    Raises `UserError` where it is not there.
    """
    try:
        network = _runner(folder).load(name, folder)
    except OSError as error:
        raise UserError(f"teacher {name} in {folder} cannot be read ({error})") from None
    forward = network.forward

    @torch.no_grad()
    def in_parts(pixels: Tensor, *stages: Sequence[str]) -> dict[str, Tensor]:
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        with autocast(pixels.device, getattr(torch, precision)):
            parts = [forward(part, *stages) for part in pixels.split(AT_ONCE)]
        return {name: torch.cat([part[name] for part in parts]).float() for name in parts[0]}

    network.forward = in_parts
    return network.to(memory_format=torch.channels_last)


def _runner(folder: Path) -> ModuleType:
    file = folder / "teachers.py"
    spec = spec_from_file_location("teacher_networks", file)
    if not file.is_file() or spec is None or spec.loader is None:
        raise UserError(f"folder of the teachers {folder} has no teachers.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Detector:
    """Finds COCO's things in photos."""

    def __init__(self, folder: Path, precision: str = "float32") -> None:
        """Read the network. Raises `UserError` where it is not there."""
        self.network = load_teacher(folder, "ssd_mobilenet_v1_075", precision)
        named = [name for name in self.network.classes if name not in ("???", "background")]
        self.classes: list[str] = named

    def __call__(self, pixels: Tensor) -> list[Boxes]:
        """Photos (B, 3, S, S) in [0, 1] -> the things in each, the surest first."""
        side = [DETECTOR_SIZE, DETECTOR_SIZE]
        resized = functional.interpolate(pixels, side, mode="bilinear", antialias=True)
        found = self.network.detect(resized, threshold=LEAST_SCORE)
        return [
            Boxes(
                torch.tensor([self.classes.index(name) for name, _, _ in boxes], dtype=torch.long),
                torch.tensor([score for _, score, _ in boxes]),
                torch.tensor([box for _, _, box in boxes]).view(-1, 4),
            )
            for boxes in found
        ]


def paint(boxes: Sequence[Boxes], side: int) -> Tensor:
    """Boxes of B photos -> (B, 80, side, side), the best score of each class at each place.

    A box covers the cells whose centres it holds, and the cell that holds its own centre.
    """
    painted = torch.zeros(len(boxes), GROUPS["things"], side, side)
    for row, (labels, scores, corners) in enumerate(boxes):
        first = (corners[:, :2] * side - 0.5).ceil()  # (M, 2)
        last = (corners[:, 2:] * side - 0.5).floor()  # (M, 2)
        centre = (corners.view(-1, 2, 2).mean(dim=1) * side).floor()  # (M, 2)
        first = torch.minimum(first, centre).clamp(0, side - 1).int().tolist()
        last = torch.maximum(last, centre).clamp(0, side - 1).int().tolist()
        cells = zip(labels.tolist(), scores.tolist(), first, last, strict=True)
        for label, score, (left, top), (right, bottom) in cells:
            painted[row, label, top : bottom + 1, left : right + 1].clamp_(min=score)
    return painted


class TeacherMaps(nn.Module):
    """The target of the annotation vectors, each channel at mean 0 and deviation 1."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, folder: Path, precision: str = "float32") -> None:
        """Read the network. Raises `UserError` where it is not there."""
        super().__init__()
        self.network = load_teacher(folder, "efficientnet_lite0", precision)
        self.register_buffer("mean", torch.zeros(1, sum(GROUPS.values()), 1, 1))
        self.register_buffer("deviation", torch.ones(1, sum(GROUPS.values()), 1, 1))

    def fit(self, pixels: Sequence[Tensor], boxes: Sequence[Sequence[Boxes]]) -> None:
        """Take mean and deviation of each channel over photos, given as batches (B, 3, S, S)."""
        maps = [self(*batch) for batch in zip(pixels, boxes, strict=True)]
        values = torch.cat(maps)  # (N, 512, S/16, S/16)
        self.mean.copy_(values.mean(dim=(0, 2, 3)).view(1, -1, 1, 1))
        deviation = values.std(dim=(0, 2, 3))  # (512,)
        # A thing that is rarely there is not blown up to the weight of a common one.
        things = deviation[-GROUPS["things"] :]
        things.clamp_(min=float(things.quantile(0.75)))
        self.deviation.copy_(deviation.clamp(min=1e-3).view(1, -1, 1, 1))

    def write_scales(self, file: Path) -> None:
        """Write mean and deviation; whole or not at all."""
        with atomic_path(file) as temporary:
            save_file({"mean": self.mean, "deviation": self.deviation}, temporary)

    def read_scales(self, file: Path) -> None:
        """Take mean and deviation from the file that `write_scales` wrote."""
        stored = load_file(file)
        self.mean.copy_(stored["mean"])
        self.deviation.copy_(stored["deviation"])

    def forward(self, pixels: Tensor, boxes: Sequence[Boxes]) -> Tensor:
        """Photos (B, 3, S, S) in [0, 1] and their things -> (B, 512, S/16, S/16)."""
        maps = self.network(pixels, ["block_10", "block_15"])
        fine = maps["block_10"]  # (B, 112, S/16, S/16)
        side = fine.shape[-1]
        deep = functional.interpolate(  # (B, 320, S/16, S/16)
            maps["block_15"], [side, side], mode="bilinear", align_corners=False
        )
        things = paint(boxes, side).to(fine)  # (B, 80, S/16, S/16)
        target = torch.cat([fine, deep, things], dim=1)  # (B, 512, S/16, S/16)
        return (target - self.mean) / self.deviation
