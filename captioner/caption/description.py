"""Describes a captioner as text."""

from __future__ import annotations

from pathlib import Path

from captioner.caption.captioner import Captioner
from captioner.cpu import default_machine
from captioner.model_folders import WEIGHTS, complete_folder, gist
from captioner.schema import to_mapping
from captioner.weight_files import checked_by


def describe(captioner: Captioner, folder: Path) -> str:
    """Parts, sizes, preprocessing, search, confidence and card's gist of the model in `folder`.

    Also the device and the precision in which commands run it here, by default.
    """
    parts = {"encoder": captioner.encoder, "decoder": captioner.decoder}
    counts = {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}
    weights = complete_folder(folder) / WEIGHTS
    lines = [
        f"model folder   {folder}",
        f"weights        {weights.stat().st_size / 1e6:.1f} MB, checked: {checked_by(weights)}",
        f"vocabulary     {len(captioner.vocabulary):,} words",
        f"runs on        {default_machine()}",
    ]
    configs = {
        "encoder": captioner.encoder.config,
        "decoder": captioner.decoder.config,
        "preprocessing": captioner.preprocessing,
        "search": captioner.search,
    }
    for name, config in configs.items():
        count = f"{counts[name]:,} parameters" if name in counts else ""
        lines += ["", f"{name:<15}{count}".rstrip()]
        lines += [f"  {field}: {value}" for field, value in to_mapping(config).items()]
    if captioner.confidence is not None:
        confidence = captioner.confidence
        lines += ["", "confidence"]
        lines += [f"  weight of {n}: {v:.4g}" for n, v in to_mapping(confidence.weights).items()]
        lines += [f"  unsure_below: {confidence.unsure_below:g}"]
    if captioner.card:
        lines += ["", gist(captioner.card, folder)]
    return "\n".join(lines)
