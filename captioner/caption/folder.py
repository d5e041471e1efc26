"""Saves and loads a captioner as a folder, without pickle.

Files: `model.safetensors` (weights), `config.json` (sizes, preprocessing, search, the
confidence of a calibrated model), `vocabulary.json` and `README.md` (model card).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from captioner.caption.base import CaptionDecoder
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence
from captioner.caption.config import CaptionDecoderConfig, ModelConfig, read_config
from captioner.caption.lstm import ShowAttendTellDecoder
from captioner.caption.transformer import TransformerDecoder
from captioner.decoding.constraints import ngrams_of_keys
from captioner.decoding.rules import ORDER, ngram_keys
from captioner.errors import UserError
from captioner.files import read_json, write_json, write_text
from captioner.memory_limits import check_memory
from captioner.model_folders import (
    CARD,
    CONFIG,
    FORMATS,
    VOCABULARY,
    WEIGHTS,
    check_digests,
    complete_folder,
    read_card,
    saving,
)
from captioner.schema import to_mapping
from captioner.text.vocabulary import Vocabulary
from captioner.vision.encoder_families import make_encoder
from captioner.weight_files import load_weights, named_tensors, write_tensors

_NGRAMS = "ngrams"  # Tensor (N, ORDER).
_PIXEL = 2 * 64 * 4  # Bytes of a VGG's first two feature maps, the largest.
_DECODERS: dict[str, Callable[[Any, int], CaptionDecoder]] = {
    "lstm": ShowAttendTellDecoder,
    "transformer": TransformerDecoder,
}
"""By `CaptionDecoderConfig.kind`."""


def make_decoder(config: CaptionDecoderConfig, vocabulary_size: int) -> CaptionDecoder:
    """The decoder of a configuration for so many words, with fresh weights."""
    return _DECODERS[config.kind](config, vocabulary_size)


def save_model(
    captioner: Captioner, folder: str | Path, dtype: torch.dtype = torch.float16
) -> None:
    """Write a captioner to a folder; after a stop, the old model loads or the new one."""
    tensors = named_tensors({"encoder": captioner.encoder, "decoder": captioner.decoder}, dtype)
    if captioner.ngrams is not None:
        words = len(captioner.vocabulary)
        ngrams = ngrams_of_keys(captioner.ngrams.cpu(), words)  # (N, ORDER)
        tensors[_NGRAMS] = ngrams.short() if words < 2**15 else ngrams
    with saving(Path(folder)) as files:
        write_tensors(files / WEIGHTS, tensors)
        save_description(captioner, files)


def save_description(captioner: Captioner, folder: Path) -> None:
    """Write the files of a model folder beside its weights."""
    captioner.vocabulary.save(folder / VOCABULARY)
    write_json(folder / CONFIG, {"format": FORMATS["captioner"], **_sections(captioner)})
    if captioner.card:
        write_text(folder / CARD, captioner.card)


def load_model(folder: str | Path, device: torch.device | str = "cpu") -> Captioner:
    """Load a captioner from a folder that `save_model` wrote."""
    folder = complete_folder(folder)
    config = read_config(folder)
    check_digests(folder, config.files)
    vocabulary = Vocabulary.load(folder / VOCABULARY)
    with torch.device("meta"):  # Allocates no memory and draws no initial weights.
        encoder = make_encoder(config.encoder).to(memory_format=torch.channels_last)
        decoder = make_decoder(config.decoder, len(vocabulary))
    check_memory(
        _PIXEL * config.preprocessing.size**2,
        f"{folder / CONFIG}: a photo of preprocessing.size {config.preprocessing.size}",
    )
    model = nn.ModuleDict({"encoder": encoder, "decoder": decoder})
    others = load_weights(model, folder / WEIGHTS, [_NGRAMS], config.files.get(WEIGHTS))
    keys = _keys(others[_NGRAMS], len(vocabulary), folder / WEIGHTS) if others else None
    try:
        captioner = Captioner(
            encoder,
            decoder,
            vocabulary,
            preprocessing=config.preprocessing,
            search=config.search,
            card=read_card(folder),
            confidence=config.confidence,
            ngrams=keys,
        )
    except UserError as error:
        raise UserError(f"{folder / CONFIG}: {error}") from None
    return captioner.to(device)


def _keys(ngrams: Tensor, words: int, path: Path) -> Tensor:
    """The keys (N,), sorted, of the stored n-grams (N, ORDER)."""
    has_ngrams = ngrams.shape[1:] == (ORDER,) and not ngrams.is_floating_point() and len(ngrams)
    if not has_ngrams or not 0 <= int(ngrams.min()) <= int(ngrams.max()) < words:
        raise UserError(f"{path}: tensor {_NGRAMS!r} does not hold {ORDER}-grams of {words} words")
    keys: Tensor = ngram_keys(ngrams.long().unbind(dim=1), words)
    return keys.sort().values


def save_confidence(confidence: Confidence, folder: str | Path) -> None:
    """Write a confidence to the config of the model folder it was fitted for."""
    path = complete_folder(folder) / CONFIG
    write_json(path, {**read_json(path, "model config"), "confidence": to_mapping(confidence)})


def _sections(captioner: Captioner) -> dict[str, dict[str, Any]]:
    """The sections of `ModelConfig`; `confidence` of a calibrated model only."""
    names = [name for name in ModelConfig.model_fields if name not in ("format", "files")]
    parts = {name: getattr(captioner, name) for name in names}
    configs = {name: getattr(part, "config", part) for name, part in parts.items()}
    return {name: to_mapping(config) for name, config in configs.items() if config is not None}
