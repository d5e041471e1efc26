"""Saves and loads a captioner as a folder, without pickle.

Files: `model.safetensors` (weights), `config.json` (sizes, preprocessing, search),
`vocabulary.json` and `README.md` (model card). A calibrated model also has the tensors of its
confidence in `model.safetensors` and its numbers in `config.json`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
from pydantic import BeforeValidator, SerializeAsAny
from torch import nn

from captioner.caption.caption_decoder import CaptionDecoderConfig
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence, ConfidenceConfig, Familiarity
from captioner.caption.decoders import decoder_config, make_decoder
from captioner.decoding import SearchOptions
from captioner.errors import UserError
from captioner.files import read_json, write_bytes, write_json, write_text
from captioner.model_folders import (
    CARD,
    CONFIG,
    FORMATS,
    WEIGHTS,
    complete_folder,
    read_card,
    read_model_config,
    saving,
)
from captioner.schema import Config, from_mapping, to_mapping
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder import EncoderConfig
from captioner.vision.encoders import encoder_config, make_encoder
from captioner.vision.preprocessing import Preprocessing
from captioner.weight_files import fill, named_tensors, read_tensors, write_tensors

FORMAT = FORMATS["captioner"]
VOCABULARY = "vocabulary.json"
_CONFIDENCE = "confidence"


class ModelConfig(Config):
    """The fields of `config.json`, which has them all.

    A field added later has the default that older models mean; never change such a default.
    """

    format: str
    encoder: Annotated[SerializeAsAny[EncoderConfig], BeforeValidator(encoder_config)]
    decoder: Annotated[SerializeAsAny[CaptionDecoderConfig], BeforeValidator(decoder_config)]
    preprocessing: Preprocessing
    search: SearchOptions
    confidence: ConfidenceConfig | None = None


def save_model(
    captioner: Captioner, folder: str | Path, dtype: torch.dtype = torch.float16
) -> None:
    """Write a captioner to a folder; whenever it is stopped, the old model loads or the new one.

    dtype: of the stored weights, except the confidence's; computation is in float32.
    Raises `UserError` if the folder cannot be written.
    """
    config = ModelConfig(
        format=FORMAT,
        encoder=captioner.encoder.config,
        decoder=captioner.decoder.config,
        preprocessing=captioner.preprocessing,
        search=captioner.search,
        confidence=None if captioner.confidence is None else captioner.confidence.config,
    )
    tensors = named_tensors({"encoder": captioner.encoder, "decoder": captioner.decoder}, dtype)
    mapping = to_mapping(config)
    if captioner.confidence is None:
        del mapping["confidence"]
    else:
        tensors |= named_tensors({_CONFIDENCE: captioner.confidence})
    with saving(Path(folder)) as files:
        write_tensors(files / WEIGHTS, tensors)
        captioner.vocabulary.save(files / VOCABULARY)
        write_json(files / CONFIG, mapping)
        if captioner.card:
            write_text(files / CARD, captioner.card)


def read_config(folder: Path) -> ModelConfig:
    """Read the config of a model folder. Raises `UserError` naming the file and the field."""
    folder = complete_folder(folder)
    mapping = read_model_config(folder, "captioner")
    return from_mapping(ModelConfig, mapping, str(folder / CONFIG))


def load_model(folder: str | Path, device: torch.device | str = "cpu") -> Captioner:
    """Load a captioner from a folder that `save_model` wrote.

    Raises `UserError` naming the file, and the field or tensor that is missing or does not fit.
    """
    folder = complete_folder(folder)
    config = read_config(folder)
    vocabulary = Vocabulary.load(folder / VOCABULARY)
    # On `meta`: no memory, no initial weights.
    with torch.device("meta"):
        encoder = make_encoder(config.encoder).to(memory_format=torch.channels_last)
        decoder = make_decoder(config.decoder, len(vocabulary))
        modules: dict[str, nn.Module] = {"encoder": encoder, "decoder": decoder}
        confidence = None
        if config.confidence is not None:
            familiarity = Familiarity(config.confidence.familiarity, config.decoder.memory_size)
            confidence = modules[_CONFIDENCE] = Confidence(config.confidence, familiarity)
    fill(nn.ModuleDict(modules), read_tensors(folder / WEIGHTS), folder / WEIGHTS)
    settings = config.preprocessing, config.search, read_card(folder), confidence
    try:
        captioner = Captioner(encoder, decoder, vocabulary, *settings)
    except UserError as error:
        raise UserError(f"{folder / CONFIG}: {error}") from None
    return captioner.to(device)


def save_confidence(confidence: Confidence, folder: str | Path) -> None:
    """Write a confidence to the model folder it was fitted for, as `save_model` does.

    The rest is unchanged. Raises `UserError` if files cannot be read or written.
    """
    old = complete_folder(folder)
    mapping = read_json(old / CONFIG, "model config")
    # Copies: Windows cannot replace a file that is open.
    tensors = {name: tensor.clone() for name, tensor in read_tensors(old / WEIGHTS).items()}
    kept = {n: (old / n).read_bytes() for n in (VOCABULARY, CARD) if (old / n).is_file()}
    with saving(Path(folder)) as files:
        for name, content in kept.items():
            write_bytes(files / name, content)
        write_tensors(files / WEIGHTS, tensors | named_tensors({_CONFIDENCE: confidence}))
        write_json(files / CONFIG, {**mapping, "confidence": to_mapping(confidence.config)})
