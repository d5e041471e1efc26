"""Saves a translator as a folder, without pickle; `captioner.load_translator` loads it.

Files: `model.safetensors`, `config.json` (sizes, search), `README.md` (model card), and
`vocabulary.json` (joint) or `source.json` and `target.json`.
"""

from pathlib import Path

import torch

from captioner.backends.torch_translations import TorchTranslations
from captioner.errors import UserError
from captioner.files import write_json, write_text
from captioner.model_folders import CARD, CONFIG, FORMATS, WEIGHTS
from captioner.model_saving import saving
from captioner.module_weights import named_tensors, write_tensors
from captioner.schema import to_mapping
from captioner.text.sentences import save_vocabularies
from captioner.translate.config import TranslatorConfig
from captioner.translate.translator import Translator


def save_translator(
    translator: Translator, folder: str | Path, dtype: torch.dtype = torch.float16
) -> None:
    """Write a translator to a folder; after a stop, the old one loads or the new one.

    dtype: type of stored floating-point weights; computation is in float32.
    """
    networks = translator.backend
    if not isinstance(networks, TorchTranslations):
        raise UserError(f"a translator computed by {networks.engine} cannot be saved")
    config = TranslatorConfig(
        format=FORMATS["translator"],
        model=networks.config,
        joint_vocabulary=networks.source is networks.target,
        maximum_source_length=translator.maximum_source_length,
        search=translator.search,
        capitals=translator.capitals,
        unsure_below=translator.unsure_below,
    )
    tensors = named_tensors({"model": networks.model}, dtype)
    with saving(Path(folder)) as files:
        write_tensors(files / WEIGHTS, tensors)
        save_vocabularies(files, networks.source, networks.target)
        write_json(files / CONFIG, to_mapping(config))
        if translator.card:
            write_text(files / CARD, translator.card)
