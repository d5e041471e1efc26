"""Photos with captions, and a config so small that a run takes a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from samples import save_photo

SMALL: dict[str, Any] = {
    "minimum_count": 1,
    "preprocessing": {"size": 64, "resize": "squash"},
    "encoder": {"name": "vgg11_bn", "width": 0.05, "weights": "random"},
    "decoder": {"embedding_size": 8, "hidden_size": 8, "attention_size": 8},
    "training": {"epochs": 2, "batch_size": 4, "learning_rate": 0.01},
    "search": {"beam": 2, "maximum_length": 8},
}


def make_table(folder: Path, training: int = 6) -> dict[str, str]:
    """Eight photos with two captions each, the first so many to train on: the section `data`."""
    lines = []
    for number in range(8):
        save_photo(folder / "photos" / f"{number}.png", seed=number)
        split = "train" if number < training else "val"
        for caption in (f"photo of the number {number}", "a photo of a colour"):
            record = {"image": f"{number}.png", "caption": caption, "split": split}
            lines.append(json.dumps(record))
    path = folder / "captions.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return {"format": "table", "annotations": str(path), "images": str(folder / "photos")}
