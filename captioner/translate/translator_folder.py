"""Saves and loads a translator as a folder, without pickle.

Files: `model.safetensors` (weights), `config.json` (sizes, search), `vocabulary.json` (joint) or
`source.json` and `target.json`, and `README.md` (model card).
"""

from __future__ import annotations

from pathlib import Path

import torch
from pydantic import Field
from torch import nn

from captioner.decoding import TranslationSearch
from captioner.errors import UserError
from captioner.files import write_json, write_text
from captioner.model_folders import (
    CARD,
    CONFIG,
    FORMATS,
    WEIGHTS,
    complete_folder,
    is_of_format,
    read_card,
    read_model_config,
    saving,
)
from captioner.schema import COUNT, Config, from_mapping, to_mapping
from captioner.text.capitals import Capitals
from captioner.text.vocabulary_files import load_vocabularies, save_vocabularies
from captioner.translate.model_config import TranslationModelConfig
from captioner.translate.translator import Translator
from captioner.weight_files import fill, named_tensors, read_tensors, write_tensors

FORMAT = FORMATS["translator"]


class TranslatorConfig(Config):
    """The fields of `config.json`, which has them all.

    A field added later has the default that older models mean; never change such a default.
    joint_vocabulary: whether both sides have the tokens of `vocabulary.json`. capitals: as of the
    translator.
    """

    format: str
    model: TranslationModelConfig
    joint_vocabulary: bool
    maximum_source_length: int = Field(ge=1, le=COUNT)
    search: TranslationSearch
    capitals: Capitals = "keep"


def is_translator(folder: str | Path) -> bool:
    """Whether the config of a folder names a translation model."""
    return is_of_format(folder, FORMAT)


def save_translator(
    translator: Translator, folder: str | Path, dtype: torch.dtype = torch.float16
) -> None:
    """Write a translator to a folder; whenever it is stopped, the old one loads or the new one.

    dtype: type of stored floating-point weights; computation is in float32.
    Raises `UserError` if the folder cannot be written.
    """
    config = TranslatorConfig(
        format=FORMAT,
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
    """Load a translator from a folder that `save_translator` wrote.

    Raises `UserError` naming the file, and the field or tensor that is missing or does not fit.
    """
    folder = complete_folder(folder)
    path = folder / CONFIG
    mapping = read_model_config(folder, "translator")
    config = from_mapping(TranslatorConfig, mapping, str(path))
    source, target = load_vocabularies(folder, config.joint_vocabulary)
    try:
        # On `meta`: allocates no memory and draws no initial weights.
        with torch.device("meta"):
            model = config.model.make(len(source), len(target))
        translator = Translator(
            config.model,
            model,
            source,
            target,
            config.maximum_source_length,
            config.search,
            read_card(folder),
            config.capitals,
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    fill(nn.ModuleDict({"model": model}), read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    return translator.to(device)
