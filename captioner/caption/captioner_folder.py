"""A saved captioner: a folder that loads anywhere, with nothing pickled in it.

`model.safetensors` (weights), `config.json` (sizes, preprocessing, search), `vocabulary.json`,
and `README.md`, the model card. Of a model that was calibrated, the confidence's tensors are in
`model.safetensors` as well, and its numbers in `config.json`; a model that was not has neither.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence, ConfidenceConfig, Familiarity
from captioner.caption.decoder import DecoderConfig, ShowAttendTellDecoder
from captioner.decoding import SearchOptions
from captioner.errors import UserError
from captioner.fields import from_mapping, to_mapping
from captioner.files import read_json, write_json, write_text
from captioner.model_folders import CARD, CONFIG, WEIGHTS, read_card, read_model_config
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoders import make_encoder
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import VGGConfig
from captioner.weight_files import fill, named_tensors, read_tensors, write_tensors

FORMAT = "captioner caption model 1"
VOCABULARY = "vocabulary.json"
_CONFIDENCE = "confidence"
_LATER = {
    "confidence": None,
    "decoder": {"standardise": False, "temperature": 1.0},
    "search": {"repeat_distance": 0},
}


@dataclass(frozen=True)
class ModelConfig:
    """What `config.json` holds, every field of it: a default may change, a saved model may not.

    Only `confidence` may be left out: a model that was not calibrated has none.
    """

    format: str
    encoder: VGGConfig
    decoder: DecoderConfig
    preprocessing: Preprocessing
    search: SearchOptions = field(default_factory=SearchOptions)
    confidence: ConfidenceConfig | None = None


def save_model(
    captioner: Captioner, folder: str | Path, dtype: torch.dtype = torch.float16
) -> None:
    """Write a captioner into a folder, each file atomically.

    dtype: what floating-point weights are stored as; they are computed with in float32. The
        confidence's tensors are always stored as they are.
    A stop leaves a folder of which no file is half written, and whose config never names a
    confidence that its weights lack; over a calibrated model it may leave that without one.
    Raises `UserError` when the folder cannot be written.
    """
    folder = Path(folder)
    _forget_confidence(folder)
    config = ModelConfig(
        FORMAT,
        captioner.encoder.config,
        captioner.decoder.config,
        captioner.preprocessing,
        captioner.search,
        None if captioner.confidence is None else captioner.confidence.config,
    )
    tensors = named_tensors({"encoder": captioner.encoder, "decoder": captioner.decoder}, dtype)
    write_tensors(folder / WEIGHTS, tensors | _stored_confidence(captioner.confidence))
    captioner.vocabulary.save(folder / VOCABULARY)
    mapping = to_mapping(config)
    if config.confidence is None:
        del mapping["confidence"]
    write_json(folder / CONFIG, mapping)
    if captioner.card:
        write_text(folder / CARD, captioner.card)


def load_model(folder: str | Path, device: torch.device | str = "cpu") -> Captioner:
    """Read a captioner from a folder that `save_model` wrote.

    Raises `UserError` naming the file, and the field or tensor, that is missing or does not fit;
    the tensors of a confidence that the config names among them.
    """
    folder = Path(folder)
    path = folder / CONFIG
    mapping = read_model_config(folder, FORMAT, "caption", _LATER)
    config = from_mapping(ModelConfig, mapping, str(path), complete=True)
    vocabulary = Vocabulary.load(folder / VOCABULARY)
    # Made without memory and without drawing initial weights, which the file's replace.
    with torch.device("meta"):
        encoder = make_encoder(config.encoder).to(memory_format=torch.channels_last)
        decoder = ShowAttendTellDecoder(config.decoder, len(vocabulary))
        confidence = None
        if config.confidence is not None:
            familiarity = Familiarity(config.confidence.familiarity, config.decoder.memory_size)
            confidence = Confidence(config.confidence, familiarity)
    tensors = read_tensors(folder / WEIGHTS)
    modules: dict[str, nn.Module] = {"encoder": encoder, "decoder": decoder}
    bare = _without_confidence(tensors)
    if confidence is None:
        tensors = bare  # Of a calibration that was stopped there may be tensors without numbers.
    elif len(bare) == len(tensors):
        raise UserError(
            f"{folder / WEIGHTS}: the tensors of the confidence that {path} names are missing; "
            f"without the field 'confidence' the model loads, and captioner calibrate gives it one"
        )
    else:
        modules[_CONFIDENCE] = confidence
    fill(nn.ModuleDict(modules), tensors, folder / WEIGHTS)
    card = read_card(folder)
    try:
        captioner = Captioner(
            encoder,
            decoder,
            vocabulary,
            config.preprocessing,
            config.search,
            card,
            confidence,
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return captioner.to(device)


def save_confidence(confidence: Confidence, folder: str | Path) -> None:
    """Write a confidence into the model folder that it was fitted for; all else stays as it is.

    A stop at any moment leaves a folder that loads: with the new confidence whole, or with none.
    Raises `UserError` when the folder's files cannot be read or written, or its config holds no
    fields.
    """
    folder = Path(folder)
    mapping = read_json(folder / CONFIG, "model config")
    if not isinstance(mapping, dict):
        raise UserError(f"{folder / CONFIG}: expected fields with values, as a model config has")
    tensors = _without_confidence(read_tensors(folder / WEIGHTS))
    mapping = _written_without_confidence(folder, mapping)
    write_tensors(folder / WEIGHTS, tensors | _stored_confidence(confidence))
    write_json(folder / CONFIG, {**mapping, "confidence": to_mapping(confidence.config)})


def _forget_confidence(folder: Path) -> None:
    """Take the numbers of a confidence out of a folder's config, before its tensors change.

    Old numbers with new tensors would mislead, and with none the folder would not load. A config
    that cannot be read is left to what replaces it.
    """
    try:
        mapping = read_json(folder / CONFIG, "model config")
    except UserError:
        return
    if isinstance(mapping, dict):
        _written_without_confidence(folder, mapping)


def _written_without_confidence(folder: Path, mapping: dict[str, Any]) -> dict[str, Any]:
    """A config without the numbers of a confidence, written where it had them."""
    without = {name: value for name, value in mapping.items() if name != "confidence"}
    if without != mapping:
        write_json(folder / CONFIG, without)
    return without


def _stored_confidence(confidence: Confidence | None) -> dict[str, Tensor]:
    return {} if confidence is None else named_tensors({_CONFIDENCE: confidence})


def _without_confidence(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n: tensor for n, tensor in tensors.items() if not n.startswith(f"{_CONFIDENCE}.")}
