"""Saves and loads a captioner as a folder, without pickle.

Files: `model.safetensors` (weights), `config.json` (sizes, preprocessing, search, the
confidence of a calibrated model), `vocabulary.json` and `README.md` (model card).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from captioner.backends.torch_captions import load_networks, networks_of
from captioner.caption.captioner import Captioner
from captioner.caption.confidence import Confidence
from captioner.caption.config import Calibration, ModelConfig
from captioner.errors import UserError
from captioner.files import StrPath, read_json, write_bytes, write_json, write_text
from captioner.model_folders import (
    CARD,
    CONFIG,
    FORMATS,
    VOCABULARY,
    WEIGHTS,
    ModelFolder,
    complete_folder,
    model_folder,
)
from captioner.model_saving import saving
from captioner.module_weights import named_tensors, write_tensors
from captioner.schema import to_mapping

if TYPE_CHECKING:
    from captioner.backends.export_weights import Precision


def save_model(captioner: Captioner, folder: StrPath, dtype: torch.dtype = torch.float16) -> None:
    """Write a captioner to a folder; after a stop, the old model loads or the new one."""
    networks = networks_of(captioner.backend)
    tensors = named_tensors({"encoder": networks.encoder, "decoder": networks.decoder}, dtype)
    with saving(Path(folder)) as files:
        write_tensors(files / WEIGHTS, tensors)
        _save_description(captioner, files)


def export_model(captioner: Captioner, folder: StrPath, precision: Precision = "float32") -> None:
    """Write a captioner as a folder of ONNX graphs that hold their weights."""
    from captioner.backends.export import captioner_graphs

    if ModelFolder(folder).has_weights:
        raise UserError(f"{folder} holds a model with its weights; export into another folder")
    graphs = captioner_graphs(networks_of(captioner.backend), precision)
    with saving(Path(folder)) as files:
        for name, content in graphs.items():
            write_bytes(files / name, content)
        _save_description(captioner, files)


def _save_description(captioner: Captioner, folder: Path) -> None:
    """Write the files of a model folder beside its weights."""
    networks = networks_of(captioner.backend)
    networks.vocabulary.save(folder / VOCABULARY)
    config = ModelConfig(
        format=FORMATS["captioner"],
        encoder=networks.encoder.config,
        decoder=networks.decoder.config,
        preprocessing=networks.preprocessing,
        search=captioner.search,
        confidence=captioner.confidence,
    )
    mapping = to_mapping(config)
    written = {name: value for name, value in mapping.items() if value not in (None, {})}
    write_json(folder / CONFIG, written)
    if captioner.card:
        write_text(folder / CARD, captioner.card)


def load_model(folder: str | Path) -> Captioner:
    """Load a captioner, computed by torch, to train or save it again.

    folder: of a model or a run, or a name, as `captioner.load` takes it.
    """
    model = ModelFolder(model_folder(folder))
    config = model.read("captioner", ModelConfig)
    return Captioner(load_networks(model), config.search, config.confidence, model.card)


def save_confidence(confidence: Confidence, folder: str | Path, file: str | None = None) -> None:
    """Write a confidence to the config of the model folder it was fitted for, or to a file."""
    if file is not None:
        calibration = Calibration(model=ModelFolder(folder).digest, confidence=confidence)
        write_json(file, to_mapping(calibration))
        return
    path = complete_folder(folder) / CONFIG
    write_json(path, {**read_json(path, "model config"), "confidence": to_mapping(confidence)})
