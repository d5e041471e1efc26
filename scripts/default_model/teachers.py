"""The networks that the packaged model's encoder is distilled from, and what they see in photos.

The runner of the networks, `teachers.py`, lies beside their weights.
"""

from __future__ import annotations

import runpy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from captioner.devices import autocast
from captioner.errors import UserError
from captioner.module_weights import write_tensors

GROUPS = {"block 10": 112, "block 15": 320, "things": 80}
"""Channels of `TeacherMaps`, in order; 512 together."""

DETECTOR_SIZE = 300
"""Side in pixels of the photos that the detector was trained on."""

MICRO_BATCH = 4
"""Photos that a network sees at once: 32 take twice as long a photo, since they leave the cache."""

LEAST_SCORE = 0.15
"""Detections below it are dropped."""


class Boxes(NamedTuple):
    """Detections of one photo: labels (M,), scores (M,), corners (M, 4).

    labels: indices into the 80 classes. corners: left, top, right, bottom in 0..1.
    """

    labels: Tensor
    scores: Tensor
    corners: Tensor


def load_teacher(folder: Path, name: str, precision: str) -> Any:
    """A network of the folder, in evaluation mode, without gradients.

    precision: of its matrix products, `float32` or `bfloat16`.
    """
    try:
        network = runpy.run_path(str(folder / "teachers.py"))["load"](name, folder)
    except OSError as error:
        raise UserError(f"teacher {name} in {folder} cannot be read ({error})") from None
    forward = network.forward

    @torch.no_grad()
    def in_parts(pixels: Tensor, *stages: Sequence[str]) -> dict[str, Tensor]:
        pixels = pixels.contiguous(memory_format=torch.channels_last)
        with autocast(pixels.device, getattr(torch, precision)):
            parts = [forward(part, *stages) for part in pixels.split(MICRO_BATCH)]
        return {name: torch.cat([part[name] for part in parts]).float() for name in parts[0]}

    network.forward = in_parts
    return network.to(memory_format=torch.channels_last)


class Detector:
    """Detects COCO's 80 things in photos."""

    def __init__(self, folder: Path, precision: str) -> None:
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
    """512 numbers at each place of a photo, which the encoder is to see; see `GROUPS`.

    Blocks 10 and 15 of EfficientNet-Lite0, and a map of each of COCO's 80 things. Each channel has
    mean 0 and deviation 1 over the photos of `fit`.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, folder: Path, precision: str, scales: Path | None = None) -> None:
        """scales: the file that `fit` wrote; None: before `fit`."""
        super().__init__()
        self.network = load_teacher(folder, "efficientnet_lite0", precision)
        self.detector = Detector(folder, precision)
        stored = {} if scales is None else load_file(scales)
        channels = (1, sum(GROUPS.values()), 1, 1)
        self.register_buffer("mean", stored.get("mean", torch.zeros(channels)))
        self.register_buffer("deviation", stored.get("deviation", torch.ones(channels)))

    def fit(self, photos: Iterable[Tensor], scales: Path) -> None:
        """Compute mean and deviation over photos, batches (B, 3, S, S), and write them."""
        values = torch.cat([self(pixels) for pixels in photos])  # (N, 512, S/16, S/16)
        deviation = values.std(dim=(0, 2, 3))  # (512,)
        # A thing that is rarely there is not blown up to the weight of a common one.
        things = deviation[-GROUPS["things"] :]
        things.clamp_(min=float(things.quantile(0.75)))
        self.mean = values.mean(dim=(0, 2, 3), keepdim=True)
        self.deviation = deviation.clamp(min=1e-3).view_as(self.mean)
        write_tensors(scales, {"mean": self.mean, "deviation": self.deviation})

    def forward(self, pixels: Tensor) -> Tensor:
        """Photos (B, 3, S, S) in [0, 1] -> (B, 512, S/16, S/16)."""
        maps = self.network(pixels, ["block_10", "block_15"])
        fine = maps["block_10"]  # (B, 112, S/16, S/16)
        side = fine.shape[-1]
        deep = functional.interpolate(  # (B, 320, S/16, S/16)
            maps["block_15"], [side, side], mode="bilinear", align_corners=False
        )
        things = paint(self.detector(pixels), side).to(fine)  # (B, 80, S/16, S/16)
        target = torch.cat([fine, deep, things], dim=1)  # (B, 512, S/16, S/16)
        return (target - self.mean) / self.deviation
