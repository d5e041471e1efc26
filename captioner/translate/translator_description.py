"""Describes a translation model as text."""

from __future__ import annotations

from pathlib import Path

from captioner.cpu import default_machine
from captioner.model_folders import WEIGHTS, complete_folder, gist
from captioner.schema import to_mapping
from captioner.translate.translator import Translator
from captioner.weight_files import checked_by

_CAPITALS = {
    "keep": "unchanged",
    "lines": "lines in upper case are read as sentences",
    "titles": "lines in upper case and titles are read as sentences",
}


def describe_translator(translator: Translator, folder: Path) -> str:
    """Sizes, vocabularies, configuration, search and card's gist of the model in `folder`."""
    count = sum(parameter.numel() for parameter in translator.model.parameters())
    joint = ", joint" if translator.source is translator.target else ""
    weights = complete_folder(folder) / WEIGHTS
    lines = [
        f"model folder   {folder}",
        f"weights        {weights.stat().st_size / 1e6:.1f} MB, checked: {checked_by(weights)}",
        f"source         {len(translator.source):,} tokens{joint}",
        f"target         {len(translator.target):,} tokens{joint}",
        f"reads          {translator.maximum_source_length:,} tokens at most",
        f"runs on        {default_machine()}",
        f"capitals       {_CAPITALS[translator.capitals]}",
    ]
    for name, config in to_mapping(translator.config).items():
        if config is not None:
            lines += ["", f"{name:<22}{count:,} parameters"]
            lines += [f"  {field}: {value}" for field, value in config.items()]
    lines += ["", "search"]
    lines += [f"  {field}: {value}" for field, value in to_mapping(translator.search).items()]
    if translator.card:
        lines += ["", gist(translator.card, folder)]
    return "\n".join(lines)
