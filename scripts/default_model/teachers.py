"""The networks that the packaged model's encoder is distilled from, and what they say of photos.

`TeacherMaps` makes the target of the annotation vectors, 512 numbers at each place: blocks 10 and
15 of EfficientNet-Lite0 (112 and 320 channels) and a map of each of COCO's 80 things where the
detector sees them. The runner of the networks, `teachers.py`, lies beside their weights.
"""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from photos import batches, kept
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from captioner.devices import autocast
from captioner.errors import UserError
from captioner.weight_files import write_tensors

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

SAMPLE = 400
"""Photos over which channels are standardised and the linear layer is begun."""


class Boxes(NamedTuple):
    """Detections of one photo: labels (M,), scores (M,), corners (M, 4).

    labels: indices into the 80 classes. corners: left, top, right, bottom in 0..1.
    """

    labels: Tensor
    scores: Tensor
    corners: Tensor


def mirror(boxes: Boxes) -> Boxes:
    """Boxes as they lie in the mirrored photo."""
    left, top, right, bottom = boxes.corners.unbind(dim=1)
    return boxes._replace(corners=torch.stack([1 - right, top, 1 - left, bottom], dim=1))


def load_teacher(folder: Path, name: str, precision: str) -> Any:
    """A network of the folder, in evaluation mode, without gradients.

    precision: of its products, `float32` or `bfloat16`.
    Raises `UserError` where it is not there.
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
            parts = [forward(part, *stages) for part in pixels.split(AT_ONCE)]
        return {name: torch.cat([part[name] for part in parts]).float() for name in parts[0]}

    network.forward = in_parts
    return network.to(memory_format=torch.channels_last)


class Detector:
    """Finds COCO's things in photos."""

    def __init__(self, folder: Path, precision: str) -> None:
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


def detect(photos: Tensor, folder: Path, file: Path, precision: str) -> list[Boxes]:
    """The things in photos (N, 3, S, S), uint8; kept in a file."""

    def make() -> dict[str, Tensor]:
        detector = Detector(folder, precision)
        found = [boxes for part in batches(photos, "detecting") for boxes in detector(part)]
        joined = Boxes(*map(torch.cat, zip(*found, strict=True)))
        return {"counts": torch.tensor([len(boxes.labels) for boxes in found]), **joined._asdict()}

    stored = kept(file, make)
    parts = [stored[name].split(stored["counts"].tolist()) for name in Boxes._fields]
    return [Boxes(*of_photo) for of_photo in zip(*parts, strict=True)]


def global_features(
    photos: Tensor, boxes: Sequence[Boxes], folder: Path, file: Path, precision: str
) -> Tensor:
    """Photos (N, 3, S, S), uint8, and their things -> (N, 2361), kept in a file.

    One vector a photo, by which captions are retrieved: EfficientNet's pooled features (1280),
    square roots of class probabilities (1001) and the best score of each of COCO's things (80).
    """

    def make() -> dict[str, Tensor]:
        eyes = load_teacher(folder, "efficientnet_lite0", precision)
        classifier = load_teacher(folder, "mobilenet_edgetpu_075", precision)
        things = torch.zeros(len(photos), GROUPS["things"])  # (N, 80)
        for row, (labels, scores, _) in enumerate(boxes):
            things[row].scatter_reduce_(0, labels, scores, "amax")
        found = []
        for pixels in batches(photos, "describing"):
            pooled = eyes(pixels, ["pooled"])["pooled"].flatten(1)  # (B, 1280)
            classes = classifier(pixels, ["logits"])["logits"].softmax(dim=1)  # (B, 1001)
            found.append(torch.cat([pooled, classes.sqrt()], dim=1))  # (B, 2281)
        return {"features": torch.cat([torch.cat(found), things], dim=1)}

    return kept(file, make)["features"]


def sample(photos: Tensor, boxes: Sequence[Boxes]) -> tuple[list[Tensor], list[list[Boxes]]]:
    """At most `SAMPLE` of the photos, as batches (B, 3, S, S) in [0, 1], and their things."""
    rows = torch.randperm(len(photos), generator=torch.Generator().manual_seed(0))[:SAMPLE]
    return list(batches(photos[rows])), [[boxes[row] for row in part] for part in rows.split(50)]


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

    def __init__(self, folder: Path, precision: str, scales: Path | None = None) -> None:
        """Read the network, and mean and deviation as `fit` wrote them.

        Raises `UserError` where the network is not there.
        """
        super().__init__()
        self.network = load_teacher(folder, "efficientnet_lite0", precision)
        self.register_buffer("mean", torch.zeros(1, sum(GROUPS.values()), 1, 1))
        self.register_buffer("deviation", torch.ones(1, sum(GROUPS.values()), 1, 1))
        if scales is not None:
            stored = load_file(scales)
            self.mean.copy_(stored["mean"])
            self.deviation.copy_(stored["deviation"])

    def fit(self, pixels: Sequence[Tensor], boxes: Sequence[Sequence[Boxes]], scales: Path) -> None:
        """Write mean and deviation of each channel over photos, given as batches (B, 3, S, S)."""
        maps = [self(*batch) for batch in zip(pixels, boxes, strict=True)]
        values = torch.cat(maps)  # (N, 512, S/16, S/16)
        deviation = values.std(dim=(0, 2, 3))  # (512,)
        # A thing that is rarely there is not blown up to the weight of a common one.
        things = deviation[-GROUPS["things"] :]
        things.clamp_(min=float(things.quantile(0.75)))
        mean = values.mean(dim=(0, 2, 3), keepdim=True)
        deviation = deviation.clamp(min=1e-3).view_as(mean)
        write_tensors(scales, {"mean": mean, "deviation": deviation})

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
