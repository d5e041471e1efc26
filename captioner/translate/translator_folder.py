"""Saves, loads and describes a translator: a folder without pickle.

Files: `model.safetensors`, `config.json` (sizes, search), `README.md` (model card), and
`vocabulary.json` (joint) or `source.json` and `target.json`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from captioner.decoding.options import TranslationSearch
from captioner.devices import choose_device
from captioner.errors import UserError
from captioner.files import read_json, write_json, write_text
from captioner.model_folders import (
    CARD,
    CONFIG,
    FORMATS,
    WEIGHTS,
    complete_folder,
    described,
    read_card,
    read_model_config,
    saving,
)
from captioner.schema import Config, Count, from_mapping, to_mapping
from captioner.text import SubwordVocabulary, TextVocabulary, WordVocabulary
from captioner.text.plain_text import Capitals
from captioner.translate.translator import TranslationModelConfig, Translator
from captioner.weight_files import fill, named_tensors, read_tensors, write_tensors


class TranslatorConfig(Config):
    """The fields of `config.json`; the default of one that was added is what older models mean."""

    format: str
    model: TranslationModelConfig
    joint_vocabulary: bool
    maximum_source_length: Count
    search: TranslationSearch
    capitals: Capitals = "keep"


def save_translator(
    translator: Translator, folder: str | Path, dtype: torch.dtype = torch.float16
) -> None:
    """Write a translator to a folder; whenever it is stopped, the old one loads or the new one.

    dtype: type of stored floating-point weights; computation is in float32.
    """
    config = TranslatorConfig(
        format=FORMATS["translator"],
        model=translator.config,
        joint_vocabulary=translator.source is translator.target,
        maximum_source_length=translator.maximum_source_length,
        search=translator.search,
        capitals=translator.capitals,
    )
    with saving(Path(folder)) as files:
        write_tensors(files / WEIGHTS, named_tensors({"model": translator.model}, dtype))
        save_vocabularies(files, translator.source, translator.target)
        write_json(files / CONFIG, to_mapping(config))
        if translator.card:
            write_text(files / CARD, translator.card)


def load_translator(folder: str | Path, device: torch.device | str = "cpu") -> Translator:
    """Load a translator from a folder that `save_translator` wrote."""
    folder = complete_folder(folder)
    path, weights = folder / CONFIG, folder / WEIGHTS
    config = from_mapping(TranslatorConfig, read_model_config(folder, "translator"), str(path))
    source, target = load_vocabularies(folder, config.joint_vocabulary)
    try:
        with torch.device("meta"):  # Allocates no memory and draws no initial weights.
            model = config.model.make(len(source), len(target))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    fill(nn.ModuleDict({"model": model}), read_tensors(weights), weights)
    settings = config.maximum_source_length, config.search, read_card(folder), config.capitals
    return Translator(config.model, model, source, target, *settings).to(device)


_JOINT = "vocabulary.json"


def save_vocabularies(folder: Path, source: TextVocabulary, target: TextVocabulary) -> None:
    """Write both vocabularies as JSON, atomically; the same object is written once."""
    sides = {_JOINT: source} if source is target else {"source.json": source, "target.json": target}
    for name, vocabulary in sides.items():
        write_json(folder / name, vocabulary.to_json(), indent=None)


def load_vocabularies(folder: Path, joint: bool) -> tuple[TextVocabulary, TextVocabulary]:
    """Read the source's and the target's vocabulary; joint ones are the same object."""
    if joint:
        vocabulary = _load(folder / _JOINT)
        return vocabulary, vocabulary
    return _load(folder / "source.json"), _load(folder / "target.json")


def _load(path: Path) -> TextVocabulary:
    value = read_json(path, "vocabulary")
    for kind in (WordVocabulary, SubwordVocabulary):
        if isinstance(value, dict) and value.get("kind") == kind.kind:
            return kind.from_json(value, f"vocabulary {path}")
    raise UserError(f"vocabulary {path}: field 'kind' is neither 'words' nor 'subwords'")


def describe_translator(translator: Translator, folder: Path) -> str:
    """Sizes, vocabularies, configuration, search and card's gist of the model in `folder`."""
    joint = ", joint" if translator.source is translator.target else ""
    facts = {
        "source": f"{len(translator.source):,} tokens{joint}",
        "target": f"{len(translator.target):,} tokens{joint}",
        "reads": f"{translator.maximum_source_length:,} tokens at most",
        "runs on": choose_device(),
        "capitals": translator.capitals,
        "parameters": f"{sum(each.numel() for each in translator.model.parameters()):,}",
    }
    configs = {**dict(translator.config), "search": translator.search}
    sections = {name: to_mapping(each) for name, each in configs.items() if each is not None}
    return described(folder, facts, sections, translator.card)
