"""A saved captioner: a folder that loads anywhere, with nothing pickled in it.

`model.safetensors` (weights), `config.json` (sizes, preprocessing, search), `vocabulary.json`,
and `README.md`, the model card.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch

from captioner.caption.captioner import Captioner, SearchOptions
from captioner.caption.decoder import DecoderConfig, ShowAttendTellDecoder
from captioner.errors import UserError
from captioner.fields import from_mapping, to_mapping
from captioner.files import read_json, read_text, write_json, write_text
from captioner.text.vocabulary import Vocabulary
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import VGGConfig, VGGEncoder
from captioner.weight_files import read_weights, write_weights

FORMAT = "captioner caption model 1"
WEIGHTS, CONFIG, VOCABULARY, CARD = (
    "model.safetensors",
    "config.json",
    "vocabulary.json",
    "README.md",
)


@dataclass(frozen=True)
class ModelConfig:
    """What `config.json` holds, every field of it: a default may change, a saved model may not."""

    format: str
    encoder: VGGConfig
    decoder: DecoderConfig
    preprocessing: Preprocessing
    search: SearchOptions = field(default_factory=SearchOptions)


def save_model(
    captioner: Captioner, folder: str | Path, dtype: torch.dtype = torch.float16
) -> None:
    """Write a captioner into a folder, each file atomically.

    dtype: what floating-point weights are stored as; they are computed with in float32.
    Raises `UserError` when the folder cannot be written.
    """
    folder = Path(folder)
    config = ModelConfig(
        FORMAT,
        captioner.encoder.config,
        captioner.decoder.config,
        captioner.preprocessing,
        captioner.search,
    )
    parts = {"encoder": captioner.encoder, "decoder": captioner.decoder}
    write_weights(folder / WEIGHTS, parts, dtype)
    captioner.vocabulary.save(folder / VOCABULARY)
    write_json(folder / CONFIG, to_mapping(config))
    if captioner.card:
        write_text(folder / CARD, captioner.card)


def load_model(folder: str | Path, device: torch.device | str = "cpu") -> Captioner:
    """Read a captioner from a folder that `save_model` wrote.

    Raises `UserError` naming the file, and the field or tensor, that is missing or does not fit.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"model folder {folder} does not exist")
    path = folder / CONFIG
    mapping = read_json(path, "model config")
    if not isinstance(mapping, dict) or mapping.get("format") != FORMAT:
        raise UserError(f"{path} is not the config of a caption model (format {FORMAT!r})")
    config = from_mapping(ModelConfig, mapping, str(path), complete=True)
    vocabulary = Vocabulary.load(folder / VOCABULARY)
    # Made without memory and without drawing initial weights, which the file's replace.
    with torch.device("meta"):
        encoder = VGGEncoder(config.encoder)
        decoder = ShowAttendTellDecoder(config.decoder, len(vocabulary))
    read_weights(folder / WEIGHTS, {"encoder": encoder, "decoder": decoder})
    encoder.to(memory_format=torch.channels_last)
    card = folder / CARD
    text = read_text(card, "model card") if card.is_file() else ""
    try:
        captioner = Captioner(
            encoder, decoder, vocabulary, config.preprocessing, config.search, text
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return captioner.to(device)
