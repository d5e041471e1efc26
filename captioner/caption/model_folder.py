"""A saved captioner: a folder that loads anywhere, with nothing pickled in it.

`model.safetensors` (weights), `config.json` (sizes, preprocessing, search), `vocabulary.json`,
and `README.md`, the model card. Of a model that was calibrated, the confidence's tensors are in
`model.safetensors` as well, and its numbers in `config.json`; a model that was not has neither.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from captioner.caption.captioner import Captioner, SearchOptions
from captioner.caption.confidence import Confidence, ConfidenceConfig
from captioner.caption.decoder import DecoderConfig, ShowAttendTellDecoder
from captioner.errors import UserError
from captioner.fields import from_mapping, to_mapping
from captioner.files import atomic_path, read_json, read_text, write_json, write_text
from captioner.text.vocabulary import Vocabulary
from captioner.vision.preprocessing import Preprocessing
from captioner.vision.vgg import VGGConfig, VGGEncoder

FORMAT = "captioner caption model 1"
WEIGHTS, CONFIG, VOCABULARY, CARD = (
    "model.safetensors",
    "config.json",
    "vocabulary.json",
    "README.md",
)
_CONFIDENCE = "confidence."


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
    Raises `UserError` when the folder cannot be written.
    """
    folder = Path(folder)
    tensors = {
        f"{part}.{name}": (tensor.to(dtype) if tensor.is_floating_point() else tensor)
        .detach()
        .cpu()
        .contiguous()
        for part, module in (("encoder", captioner.encoder), ("decoder", captioner.decoder))
        for name, tensor in module.state_dict().items()
    }
    tensors |= _confidence_tensors(captioner.confidence)
    config = ModelConfig(
        FORMAT,
        captioner.encoder.config,
        captioner.decoder.config,
        captioner.preprocessing,
        captioner.search,
        None if captioner.confidence is None else captioner.confidence.config,
    )
    _save_tensors(tensors, folder / WEIGHTS)
    captioner.vocabulary.save(folder / VOCABULARY)
    mapping = to_mapping(config)
    if config.confidence is None:
        del mapping["confidence"]
    write_json(folder / CONFIG, mapping)
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
    config = from_mapping(ModelConfig, {"confidence": None, **mapping}, str(path), complete=True)
    vocabulary = Vocabulary.load(folder / VOCABULARY)
    # Made without memory and without drawing initial weights, which the file's replace.
    with torch.device("meta"):
        encoder = VGGEncoder(config.encoder)
        decoder = ShowAttendTellDecoder(config.decoder, len(vocabulary))
        confidence = None if config.confidence is None else Confidence(config.confidence)
    weights = folder / WEIGHTS
    tensors = _load_tensors(weights)
    modules: dict[str, torch.nn.Module] = {"encoder": encoder, "decoder": decoder}
    if confidence is None:  # A stopped calibration may have left tensors, which mean nothing.
        tensors = _without_confidence(tensors)
    else:
        modules["confidence"] = confidence
    expected = {f"{part}.{n}": t for part, m in modules.items() for n, t in m.state_dict().items()}
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors:
            raise UserError(f"{weights}: tensor {name!r} is missing")
        if name not in expected:
            raise UserError(f"{weights}: tensor {name!r} does not belong to this model")
        if tensors[name].shape != expected[name].shape:
            raise UserError(
                f"{weights}: tensor {name!r} is {tuple(tensors[name].shape)}, "
                f"not {tuple(expected[name].shape)}"
            )
        if tensors[name].is_floating_point() != expected[name].is_floating_point():
            raise UserError(
                f"{weights}: tensor {name!r} is of type {tensors[name].dtype}, "
                f"not {expected[name].dtype}"
            )
    for part, module in modules.items():
        own = {
            name: tensors[f"{part}.{name}"].to(tensor.dtype)
            for name, tensor in module.state_dict().items()
        }
        module.load_state_dict(own, assign=True)
    encoder.to(memory_format=torch.channels_last)
    card = folder / CARD
    text = read_text(card, "model card") if card.is_file() else ""
    try:
        captioner = Captioner(
            encoder,
            decoder,
            vocabulary,
            config.preprocessing,
            config.search,
            text,
            confidence,
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return captioner.to(device)


def save_confidence(confidence: Confidence, folder: str | Path) -> None:
    """Write a confidence into the model folder that it was fitted for; all else stays as it is.

    A stop at any moment leaves a folder that loads: with the new confidence whole, or with none.
    Raises `UserError` when the folder's files cannot be read or written.
    """
    folder = Path(folder)
    mapping = dict(read_json(folder / CONFIG, "model config"))
    tensors = _without_confidence(_load_tensors(folder / WEIGHTS))
    if mapping.pop("confidence", None) is not None:  # New tensors with old numbers would mislead.
        write_json(folder / CONFIG, mapping)
    _save_tensors(tensors | _confidence_tensors(confidence), folder / WEIGHTS)
    write_json(folder / CONFIG, {**mapping, "confidence": to_mapping(confidence.config)})


def _confidence_tensors(confidence: Confidence | None) -> dict[str, Tensor]:
    if confidence is None:
        return {}
    return {
        f"{_CONFIDENCE}{name}": tensor.detach().cpu().contiguous()
        for name, tensor in confidence.state_dict().items()
    }


def _without_confidence(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n: tensor for n, tensor in tensors.items() if not n.startswith(_CONFIDENCE)}


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    with atomic_path(path) as temporary:
        try:
            save_file(tensors, temporary)
        except SafetensorError as error:
            raise UserError(f"cannot write {path}: {error}") from None


def _load_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise UserError(f"model weights {path} do not exist")
    try:
        found: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"model weights {path} cannot be read ({error})") from None
    return found
