"""What the teachers say of whole photos: one vector a photo, by which captions are retrieved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import photos as worlds
import torch
from safetensors.torch import load_file, save_file
from teachers import GROUPS, Boxes, load_teacher
from torch import Tensor

from captioner.files import atomic_path
from captioner.progress import progress_bar


def global_features(
    photos: Tensor, boxes: Sequence[Boxes], folder: Path, file: Path, precision: str = "float32"
) -> Tensor:
    """Photos (N, 3, S, S), uint8, and their things -> (N, 2361); kept in a file.

    EfficientNet's pooled features (1280), square roots of class probabilities (1001) and the best
    score of each of COCO's things (80).
    """
    if not file.exists():
        eyes = load_teacher(folder, "efficientnet_lite0", precision)
        classifier = load_teacher(folder, "mobilenet_edgetpu_075", precision)
        progress = progress_bar("describing", len(photos), "photos")
        found = []
        for pixels in worlds.batches(photos, 50):
            pooled = eyes(pixels, ["pooled"])["pooled"].flatten(1)  # (B, 1280)
            classes = classifier(pixels, ["logits"])["logits"].softmax(dim=1)  # (B, 1001)
            found.append(torch.cat([pooled, classes.sqrt()], dim=1))  # (B, 2281)
            progress.update(len(pixels))
        progress.close()
        things = torch.zeros(len(photos), GROUPS["things"])  # (N, 80)
        for row, (labels, scores, _) in enumerate(boxes):
            things[row].scatter_reduce_(0, labels, scores, "amax")
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(file) as temporary:
            save_file({"features": torch.cat([torch.cat(found), things], dim=1)}, temporary)
    return load_file(file)["features"]
